# bash completion for gpubufctl. Load it with: source <(gpubufctl completion bash)

# Object names may hold spaces and colons. Behind an open quote they stand as they are; bash
# itself completes what is behind the last colon of others.
_gpubufctl() {
    local last=$COMP_CWORD current=${COMP_WORDS[COMP_CWORD]} line=${COMP_LINE:0:COMP_POINT}
    local typed quote='' name colons
    COMPREPLY=()
    # bash cuts words at colons: the current one is put together again.
    while ((last > 1)) && [[ ${COMP_WORDS[last]} == *: || ${COMP_WORDS[last-1]} == *: ]] &&
        [[ $line == *"${COMP_WORDS[last-1]}$current" ]]; do
        ((--last))
        current=${COMP_WORDS[last]}$current
    done
    typed=${current//\\/}
    if [[ $current == [\'\"]* ]]; then
        quote=${current:0:1} typed=${current:1}
    fi
    while IFS= read -r name; do
        if [[ $name == $'\t' ]]; then
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
            return
        fi
        [[ $quote && $name == *[\'\"\`\$\\]* ]] && continue
        [[ $quote ]] || printf -v name '%q' "$name"
        COMPREPLY+=("$name")
    done < <(gpubufctl completion bash -- "${COMP_WORDS[@]:1:last-1}" "$typed" 2>/dev/null)
    if [[ ! $quote && $current == *:* && $COMP_WORDBREAKS == *:* ]]; then
        colons=${current%"${current##*:}"}
        COMPREPLY=("${COMPREPLY[@]#"$colons"}")
    fi
}

complete -F _gpubufctl gpubufctl
