/* gpubufctl completion SHELL: a script that asks gpubufctl at each Tab what may follow, and the
   answer. */
#include <stdio.h>
#include <string.h>

#include "commands.h"

static const char *const scripts[] = {
    [GB_SHELL_BASH] =
        "# bash completion for gpubufctl. Load it with: source <(gpubufctl completion bash)\n"
        "\n"
        "# Object names may hold spaces and colons. Behind an open quote they stand as they are; "
        "bash\n"
        "# itself completes what is behind the last colon of others.\n"
        "_gpubufctl() {\n"
        "    local last=$COMP_CWORD current=${COMP_WORDS[COMP_CWORD]} "
        "line=${COMP_LINE:0:COMP_POINT}\n"
        "    local typed quote='' name colons\n"
        "    COMPREPLY=()\n"
        "    # bash cuts words at colons: the current one is put together again.\n"
        "    while ((last > 1)) && [[ ${COMP_WORDS[last]} == *: || ${COMP_WORDS[last-1]} == *: ]] "
        "&&\n"
        "        [[ $line == *\"${COMP_WORDS[last-1]}$current\" ]]; do\n"
        "        ((--last))\n"
        "        current=${COMP_WORDS[last]}$current\n"
        "    done\n"
        "    typed=${current//\\\\/}\n"
        "    if [[ $current == [\\'\\\"]* ]]; then\n"
        "        quote=${current:0:1} typed=${current:1}\n"
        "    fi\n"
        "    while IFS= read -r name; do\n"
        "        if [[ $name == $'\\t' ]]; then\n"
        "            compopt -o filenames 2>/dev/null\n"
        "            mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
        "            return\n"
        "        fi\n"
        "        [[ $quote && $name == *[\\'\\\"\\`\\$\\\\]* ]] && continue\n"
        "        [[ $quote ]] || printf -v name '%q' \"$name\"\n"
        "        COMPREPLY+=(\"$name\")\n"
        "    done < <(gpubufctl completion bash -- \"${COMP_WORDS[@]:1:last-1}\" \"$typed\" "
        "2>/dev/null)\n"
        "    if [[ ! $quote && $current == *:* && $COMP_WORDBREAKS == *:* ]]; then\n"
        "        colons=${current%\"${current##*:}\"}\n"
        "        COMPREPLY=(\"${COMPREPLY[@]#\"$colons\"}\")\n"
        "    fi\n"
        "}\n"
        "\n"
        "complete -F _gpubufctl gpubufctl\n",
    [GB_SHELL_ZSH] =
        "#compdef gpubufctl\n"
        "# zsh completion for gpubufctl: put it into a directory of $fpath as _gpubufctl, or load\n"
        "# it with: source <(gpubufctl completion zsh)\n"
        "\n"
        "_gpubufctl() {\n"
        "    local line\n"
        "    local -a found\n"
        "    for line in \"${(@f)$(gpubufctl completion zsh -- \"${(@Q)words[2,CURRENT]}\" "
        "2>/dev/null)}\"; do\n"
        "        if [[ $line == $'\\t' ]]; then\n"
        "            compset -P '--*='\n"
        "            _files\n"
        "        elif [[ -n $line ]]; then\n"
        "            found+=(\"$line\")\n"
        "        fi\n"
        "    done\n"
        "    _describe gpubufctl found\n"
        "}\n"
        "\n"
        "if [[ $funcstack[1] == _gpubufctl ]]; then\n"
        "    _gpubufctl \"$@\"\n"
        "else\n"
        "    compdef _gpubufctl gpubufctl\n"
        "fi\n",
    [GB_SHELL_FISH] =
        "# fish completion for gpubufctl: gpubufctl completion fish | source\n"
        "\n"
        "function __gpubufctl\n"
        "    set -l words (commandline -opc)\n"
        "    set -l current (commandline -ct)\n"
        "    for line in (gpubufctl completion fish -- $words[2..-1] \"$current\" 2>/dev/null)\n"
        "        if test \"$line\" = \\t\n"
        "            __fish_complete_path \"$current\"\n"
        "        else\n"
        "            printf '%s\\n' $line\n"
        "        end\n"
        "    end\n"
        "end\n"
        "\n"
        "complete -c gpubufctl -f -a '(__gpubufctl)'\n",
};

void gb_cmd_completion(struct gb_cli *cli, struct gb_cli_args *args)
{
    int64_t shell = gb_cli_place(args->value[0], "bash zsh fish");

    if (shell == 0)
        gb_cli_usage(cli, "there is completion for bash, zsh and fish, not for \"%s\"",
                     args->value[0]);
    if (args->count > 1)
        gb_complete(cli, (enum gb_shell)(shell - 1), args->value + 1, args->count - 1);
    else
        fputs(scripts[shell - 1], stdout);
}
