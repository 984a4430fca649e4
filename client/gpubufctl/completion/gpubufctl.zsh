#compdef gpubufctl
# zsh completion for gpubufctl: put it into a directory of $fpath as _gpubufctl, or load
# it with: source <(gpubufctl completion zsh)

_gpubufctl() {
    local line
    local -a found
    for line in "${(@f)$(gpubufctl completion zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == $'\t' ]]; then
            compset -P '--*='
            _files
        elif [[ -n $line ]]; then
            found+=("$line")
        fi
    done
    _describe gpubufctl found
}

if [[ $funcstack[1] == _gpubufctl ]]; then
    _gpubufctl "$@"
else
    compdef _gpubufctl gpubufctl
fi
