# fish completion. Nothing is listed here: the program on the line is asked for its --help, which it
# makes of the table that its parser uses, so what is offered is what this program takes. The file is
# there once for each program, under its name.

# Prints the values that an option's argument may have, one per line, after PREFIX.
function __hearth_values --argument-names name argument prefix listed
    set -l token (string replace -- "$prefix" '' (commandline -ct))
    if test -n "$listed"
        printf "$prefix%s\n" (string split '|' -- $listed)
    else if string match -q '*|*' -- $argument
        printf "$prefix%s\n" (string split '|' -- $argument)
    end
    if string match -qr '^(FILE|PATH|DIR)|[|]FILE$' -- $argument
        set -l paths (__fish_complete_path $token)
        if contains -- $name --model --draft --from
            set paths (string match -r '.*(?:/|\.gguf)(?:\t.*)?$' -- $paths)
        end
        printf "$prefix%s\n" $paths
    end
end

# Prints the candidates for the word at the cursor: "WORD<tab>DESCRIPTION".
function __hearth_candidates
    set -l tokens (commandline -opc)
    set -l token (commandline -ct)
    set -l program (string replace -r '^~' $HOME -- $tokens[1])
    set -l command
    set -l lines
    if test (path basename -- $program) = hearth
        if test (count $tokens) -eq 1
            for line in ($program --help 2>/dev/null </dev/null)
                string match -qr '^  (?<word>[a-z][a-z-]*)  +(?<text>.*)' -- $line; and printf '%s\t%s\n' $word $text
            end
            printf '%s\n' --help --version
            return
        end
        string match -qr '^[a-z][a-z-]*$' -- $tokens[2]; or return
        set command $tokens[2]
    end
    set -l prefix ''
    set -l option $tokens[-1]
    if string match -qr '^(?<given>--[a-z0-9-]+)=' -- $token
        set option $given
        set prefix $given=
    end
    # A list continues after a comma.
    set -l help ($program $command --help 2>/dev/null </dev/null | string collect)
    set help (string replace -ra -- ',\n +' ', ' $help)
    for line in $help
        if string match -qr '^ +(-[a-zA-Z], )?(?<name>--[a-z0-9-]+)( (?<argument>[^ ]+))?(?<text>.*)' -- $line
            # "auto, cpu or cuda": the description lists what it takes
            set -l words (string match -r '^ *([a-z0-9_]+(?:, [a-z0-9_]+)*) or ([a-z0-9_]+)(?:$| \()' -- $text)
            set -l listed
            if test -n "$argument" -a (count $words) -eq 3
                set argument (string replace -a ', ' '|' -- $words[2])"|$words[3]"
            end
            for list in (string match -r "^$(string sub -s 3 -- $name)s: +.*" -- $help) # shapes: tiny, small, ...
                set listed (string replace -r '^[a-z]+: +' '' -- $list | string replace -a ', ' '|')
            end
            if test "$option" = "$name" -a -n "$argument"
                __hearth_values $name $argument "$prefix" "$listed"
                return
            end
            set -a lines (printf '%s\t%s' $name (string trim -- $text))
        end
    end
    test -z "$prefix"; or return
    if string match -q -- '-*' $token
        printf '%s\n' $lines
        string match -q -- '--help*' $lines; or echo --help
    else if string match -qr -- '^([Uu]sage:| +hearth).*(FILE\.\.\.|\[FILE| OUT)' $help
        __fish_complete_path $token
    end
end

complete -c (path change-extension '' (path basename -- (status filename))) -f -a '(__hearth_candidates)'
