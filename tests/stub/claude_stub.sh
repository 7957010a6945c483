#!/bin/sh
# The fastest stand-in for claude, for benchmarks: reads its prompt, prints an init event, then does what
# STUB_SH_MODE says: `end` (the default) prints a result, `stay` waits for a signal, `lines N` prints N lines.
[ "$1" = --version ] && { echo '2.1.197 (Claude Code)'; exit 0; }
session=00000000-0000-4000-8000-000000000000
previous=
for word; do
    case $previous in --session-id | --resume) session=$word ;; esac
    case $word in --session-id=* | --resume=*) session=${word#*=} ;; esac
    previous=$word
done
while read -r _; do :; done
printf '{"type":"system","subtype":"init","session_id":"%s","model":"stub","tools":[],' "$session"
printf '"mcp_servers":[],"claude_code_version":"2.1.197"}\n'
set -- ${STUB_SH_MODE:-end}
case $1 in
stay)
    trap 'exit 0' INT
    trap 'exit 143' TERM
    while :; do sleep 3600 & wait $!; done
    ;;
lines)
    count=0
    while [ "$count" -lt "$2" ]; do
        echo '{"type":"stream_event","event":{"type":"content_block_delta","delta":{"text":"word"}}}'
        count=$((count + 1))
    done
    ;;
esac
printf '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"done",'
printf '"session_id":"%s","total_cost_usd":0,"terminal_reason":"completed"}\n' "$session"
