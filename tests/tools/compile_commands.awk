# Makes compile_commands.json of what `make -n V=1` prints: each line that compiles a file.
BEGIN { printf "[" }
match($0, / -c [^ ]+/) {
    file = substr($0, RSTART + 4, RLENGTH - 4)
    gsub(/\\/, "\\\\")
    gsub(/"/, "\\\"")
    printf "%s\n{\"directory\": \"%s\", \"file\": \"%s\", \"command\": \"%s\"}", comma, folder, file, $0
    comma = ","
}
END { print "\n]" }
