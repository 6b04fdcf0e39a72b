# bash completion for hearth, hearthd, hearth-bench, hearth-mkmodel and hearth-http.
#
# Nothing is listed here: the program on the line is asked for its --help, which it makes of the table
# that its parser uses, so what is offered is what this program takes. That costs a millisecond.

# Reads `PROGRAM [COMMAND] --help`: the options into _hearth_names, what each takes into
# _hearth_arguments (empty: nothing), and the usage line into _hearth_usage. All are the caller's.
_hearth_read_help() {
    local line more words text
    while IFS= read -r line; do
        while [[ $line == *, ]] && read -r more; do # a list goes on
            line+=" $more"
        done
        if [[ $line =~ ^\ +((-[a-zA-Z]),\ )?(--[a-z0-9-]+)(\ ([^ ]+))?(.*) ]]; then
            _hearth_names+=("${BASH_REMATCH[3]}")
            words=${BASH_REMATCH[5]} text=${BASH_REMATCH[6]}
            # "auto, cpu or cuda": the description lists what it takes
            if [[ -n $words && $text =~ ^\ *([a-z0-9_]+(, [a-z0-9_]+)*)\ or\ ([a-z0-9_]+)($|\ \() ]]; then
                words=${BASH_REMATCH[1]//, /|}\|${BASH_REMATCH[3]}
            fi
            _hearth_arguments+=("$words")
        elif [[ $line =~ ^([a-z]+)s:\ +([^ ].*) ]]; then # shapes: tiny, small, ...
            _hearth_lists+=("${BASH_REMATCH[1]}" "${BASH_REMATCH[2]//, /|}")
        elif [[ $line =~ ^[Uu]sage:\ |^\ +hearth ]]; then
            _hearth_usage+=$line
        elif [[ $line =~ ^\ \ ([a-z][a-z-]*)\ \  ]]; then
            _hearth_commands+=("${BASH_REMATCH[1]}")
        fi
    done < <("$@" --help 2>/dev/null </dev/null)
}

_hearth_files() { # CUR [PATTERN]: files, those that match PATTERN, and folders
    local name
    compopt -o filenames 2>/dev/null
    while IFS= read -r name; do
        [[ -n ${2-} && ! -d ${name/#\~/$HOME} && $name != $2 ]] || COMPREPLY+=("$name")
    done < <(compgen -f -- "$1")
}

# What an option's argument may be.
_hearth_values() { # NAME ARGUMENT CUR
    local i words=
    [[ $2 != *'|'* ]] || words=$2
    for ((i = 0; i < ${#_hearth_lists[@]}; i += 2)); do
        [[ --${_hearth_lists[i]} != "$1" ]] || words=${_hearth_lists[i + 1]}
    done
    [[ -z $words ]] || COMPREPLY=($(compgen -W "${words//|/ }" -- "$3"))
    case $2 in
    FILE* | *'|FILE' | PATH | DIR) case $1 in
        --model | --draft | --from) _hearth_files "$3" '*.gguf' ;;
        *) _hearth_files "$3" ;;
        esac ;;
    esac
}

_hearth() {
    local program=${COMP_WORDS[0]/#\~/$HOME} cur=${COMP_WORDS[COMP_CWORD]} command= option= i
    local -a _hearth_names _hearth_arguments _hearth_lists _hearth_commands
    local _hearth_usage=
    COMPREPLY=()
    if [[ ${program##*/} == hearth ]]; then
        if ((COMP_CWORD == 1)); then
            _hearth_read_help "$program"
            COMPREPLY=($(compgen -W "${_hearth_commands[*]} --help --version" -- "$cur"))
            return
        fi
        command=${COMP_WORDS[1]}
        [[ $command =~ ^[a-z][a-z-]*$ ]] || return
    fi
    _hearth_read_help "$program" $command
    # The option before the cursor: "--x", or "--x" "=" in a word of its own.
    if [[ $cur == = ]]; then
        cur= option=${COMP_WORDS[COMP_CWORD - 1]}
    elif [[ ${COMP_WORDS[COMP_CWORD - 1]} == = ]]; then
        option=${COMP_WORDS[COMP_CWORD - 2]}
    else
        option=${COMP_WORDS[COMP_CWORD - 1]}
    fi
    for ((i = 0; i < ${#_hearth_names[@]}; i++)); do
        if [[ ${_hearth_names[i]} == "$option" && -n ${_hearth_arguments[i]} ]]; then
            _hearth_values "$option" "${_hearth_arguments[i]}" "$cur"
            return
        fi
    done
    if [[ $cur == -* ]]; then
        [[ " ${_hearth_names[*]} " == *' --help '* ]] || _hearth_names+=(--help)
        COMPREPLY=($(compgen -W "${_hearth_names[*]}" -- "$cur"))
    elif [[ ${_hearth_usage#*hearth*[[:space:]]} =~ FILE\.\.\.|\[FILE|\ OUT ]]; then
        _hearth_files "$cur"
    fi
}

complete -F _hearth hearth hearthd hearth-bench hearth-mkmodel hearth-http
