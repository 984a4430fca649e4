# fish completion for gpubufctl: gpubufctl completion fish | source

function __gpubufctl
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in (gpubufctl completion fish -- $words[2..-1] "$current" 2>/dev/null)
        if test "$line" = \t
            __fish_complete_path "$current"
        else
            printf '%s\n' $line
        end
    end
end

complete -c gpubufctl -f -a '(__gpubufctl)'
