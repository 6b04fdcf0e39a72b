# line.awk: a bench's JSON lines as one line of the table. -v name=NAME
function value(key) {
    if (!match($0, "\"" key "\":[^,}]*"))
        return ""
    return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
}
/"what":"decode"/ {
    read = value("read_gb_s")
    steps = steps sprintf("  %d: %.3f ms %.0f %%", value("slots"), 1000 * value("slots") / value("tok_s"), 100 * value("bandwidth_share"))
}
/"what":"prefill"/ { prefill = sprintf("  prefill %.0f tok/s, first %.1f ms", value("tok_s"), value("first_token_ms")) }
/"what":"start"/ { start = sprintf("  start %.1f us", value("start_us")) }
/"what":"window"/ && value("rows") ~ /^(16|64)$/ { windows = windows sprintf("  w%d %.2f x", value("rows"), value("over_one")) }
/"what":"load"/ { note = value("note") ~ /by cuBLAS/ ? "  (cuBLAS)" : "" }
END { printf "%-30s%s  of %.0f GB/s%s%s%s%s\n", name, steps, read, windows, prefill, start, note }
