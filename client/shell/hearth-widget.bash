# A key that turns a description on the command line into a command line. In ~/.bashrc:
#
#   source /usr/share/hearth/hearth-widget.bash
#
# Type what you want, press Alt-h, read what stands there now, and press Enter if you want that run:
# the widget never runs anything. Undo (Ctrl-_) brings the description back, Ctrl-C while the model
# thinks leaves it alone. HEARTH_WIDGET_KEY, set before, names another key: '\C-xh'.

source "${BASH_SOURCE[0]%/*}/hearth-widget.sh"

_hearth_widget() {
    local answer code trap
    [[ $READLINE_LINE == *[![:space:]]* ]] || return 0
    trap=$(trap -p INT)
    trap : INT # Ctrl-C is for hearth: without this bash would throw the line away
    printf '\r\033[K%s' 'hearth: thinking (Ctrl-C stops it)' >/dev/tty
    answer=$(_hearth_widget_ask bash "$READLINE_LINE")
    code=$?
    printf '\r\033[K' >/dev/tty
    eval "${trap:-trap - INT}"
    if ((code == 0)) && [[ -n $answer ]]; then
        READLINE_LINE=$answer READLINE_POINT=${#answer}
    elif ((code == 0)); then
        printf '%s\n' 'hearth: the model has no answer to that' >/dev/tty
    elif ((code != 130)); then
        printf '%s\n' "$answer" >/dev/tty
    fi
}

for _hearth_map in emacs vi-insert; do
    bind -m "$_hearth_map" -x "\"${HEARTH_WIDGET_KEY:-\\eh}\": _hearth_widget"
done
unset _hearth_map
