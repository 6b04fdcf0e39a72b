# A key that turns a description on the command line into a command line. In ~/.zshrc:
#
#   source /usr/share/hearth/hearth-widget.zsh
#
# Type what you want, press Alt-h, read what stands there now, and press Enter if you want that run:
# the widget never runs anything. Undo (Ctrl-_) brings the description back, Ctrl-C while the model
# thinks leaves it alone. HEARTH_WIDGET_KEY, set before, names another key: '^Xh'.

source "${${(%):-%x}:A:h}/hearth-widget.sh"

_hearth_widget() {
    emulate -L zsh
    setopt local_traps no_monitor
    local answer code
    [[ $BUFFER == *[![:space:]]* ]] || return 0
    trap : INT # Ctrl-C is for hearth: without this zsh would throw the line away
    zle -R 'hearth: thinking (Ctrl-C stops it)'
    answer=$(_hearth_widget_ask zsh "$BUFFER")
    code=$?
    if ((code == 0)) && [[ -n $answer ]]; then
        BUFFER=$answer CURSOR=${#answer}
    elif ((code == 0)); then
        zle -M 'hearth: the model has no answer to that'
    elif ((code != 130)); then
        zle -M -- "$answer"
    fi
    return 0
}

zle -N _hearth_widget
for _hearth_map in emacs viins; do
    bindkey -M $_hearth_map "${HEARTH_WIDGET_KEY:-^[h}" _hearth_widget
done
unset _hearth_map
