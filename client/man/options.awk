# The options of `hearthd --help` for hearthd.conf.5; those that only a command line has are left out.
/^  --/ {
    name = $1
    sub(/^--/, "", name)
    if (name ~ /^(config|check|version|help)$/)
        next
    value = $2
    text = $0
    sub(/^ +--[^ ]+ [^ ]+ +/, "", text)
    gsub(/-/, "\\-", name)
    gsub(/-/, "\\-", text)
    printf ".TP\n.BI %s \" = %s\"\n%s.\n", name, value, toupper(substr(text, 1, 1)) substr(text, 2)
}
