# The functions of hearth.h for libhearth.3: each declaration with the comment in front of it.
# -v want=names prints their names in a line, as the NAME section has them; want=functions the section.

function roff(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    sub(/^[.']/, "\\\\\\&&", text)
    return text
}

# A comment's lines, without its signs.
function bare(line) {
    sub(/ *\*\/ *$/, "", line)
    sub(/^ *\/?\* ?/, "", line)
    sub(/^ +/, "", line)
    return line
}

/^\/\* ---- / {
    section = $0
    gsub(/^\/\* -+ | -+ \*\/$/, "", section)
    next
}
/^\/\*/ { comment = ""; in_comment = 1 }
in_comment {
    if (bare($0) != "")
        comment = comment roff(bare($0)) "\n"
    if (/\*\//)
        in_comment = 0
    next
}
/^HEARTH_API / { declaration = "" ; in_declaration = 1 }
in_declaration {
    declaration = declaration " " $0
    if (!/;/)
        next
    in_declaration = 0
    gsub(/ +/, " ", declaration)
    sub(/^ HEARTH_API /, "", declaration)
    name = declaration
    sub(/\(.*/, "", name)
    sub(/.*[ *]/, "", name)
    names = names (names == "" ? "" : ", ") name
    if (want == "functions") {
        printf section == shown ? ".PP\n" : ".SS %s\n", section
        shown = section
        printf "\\fB%s\\fP\n.RS\n%s.RE\n", roff(declaration), comment
    }
    comment = ""
    next
}
/^$|^[^ ]/ { comment = "" }
END {
    if (want == "names")
        print names
}
