# What the widgets for bash and zsh share: from a description to one command line. Sourced by
# hearth-widget.bash and hearth-widget.zsh, which are what a shell sources.

# The prompt: tasks and their commands, for models with and without chat training.
_hearth_widget_prompt() { # SHELL DESCRIPTION
    printf '%s\n' \
        "# Tasks, and for each the one line of $1 that does it on Linux." '' \
        'Task: list the files here by size, largest first' 'Command: ls -lS' '' \
        'Task: count the lines of all python files below this folder' \
        "Command: find . -name '*.py' -print0 | xargs -0 cat | wc -l" '' \
        'Task: which process listens on port 8080' "Command: ss -ltnp 'sport = :8080'" '' \
        'Task: replace tabs by four spaces in notes.txt' "Command: sed -i 's/\\t/    /g' notes.txt" '' \
        'Task: the ten largest folders in my home' \
        'Command: du -h --max-depth=1 ~ | sort -rh | head -n 10' '' \
        "Task: $(printf '%s' "$2" | tr '\n' ' ')"
    printf 'Command:'
}

# Whatever a model says becomes one line that shows what it is: no control characters or escape
# sequences, no signs that turn the direction of text or cannot be seen; the first line that is one
# (no fence of Markdown around it), and nothing at its end that would make the shell ask for more.
_hearth_widget_clean() {
    local hidden
    # Octal bytes of UTF-8; the characters are those of client/base/printable.c.
    hidden=$(printf '%b' '\0302[\0200-\0237\0255]|\0315\0217|\0330\0234' \
        '|\0341(\0205[\0237\0240]|\0236[\0264\0265]|\0240[\0213-\0217])' \
        '|\0342(\0200[\0213-\0217\0250-\0256]|\0201[\0240-\0257])|\0343\0205\0244' \
        '|\0357(\0273\0277|\0276\0240|\0277[\0260-\0273])' \
        '|\0360(\0233\0262[\0240-\0243]|\0235\0205[\0263-\0272])|\0363\0240[\0200-\0277][\0200-\0277]')
    LC_ALL=C tr '\011' ' ' | LC_ALL=C tr -d '\000-\010\013-\037\177' | LC_ALL=C sed -E "s/$hidden//g" |
        LC_ALL=C awk '
            /^[ ]*```/ || /^[ ]*$/ { next }
            {
                sub(/^ +/, ""); sub(/^\$ +/, ""); sub(/^`/, "")
                sub(/[ `]+$/, "")
                while (match($0, /\\+$/) && RLENGTH % 2 == 1)
                    sub(/ *\\$/, "")
                printf "%s", $0
                exit
            }'
}

# Prints the command line for a description, or the reason for having none. Returns what hearth returned: 0,
# 130 after Ctrl-C, else a failure.
_hearth_widget_ask() { # SHELL DESCRIPTION
    local answer code errors
    errors=$(mktemp) || return 71
    answer=$(_hearth_widget_prompt "$1" "$2" |
        command hearth run --max-tokens 128 --temperature 0 --slot "widget-$1-$$" --stop '
' 2>"$errors")
    code=$?
    [ "$code" -eq 0 ] || answer=$(tail -n 1 "$errors")
    rm -f "$errors"
    printf '%s' "$answer" | _hearth_widget_clean
    return "$code"
}
