#!/usr/bin/env zsh
# Types a line and a tab into a zsh that has the completions of a directory, and prints
# the command that zsh made of it: complete.zsh DIR PROGRAM LINE
zmodload zsh/zpty || exit 77
zpty typed zsh -f -i
zpty -w typed "PS1=; unsetopt beep; fpath=(${(q)1} \$fpath); autoload -U compinit; compinit -u -D"
# The quotes part what is typed, which is shown too, from what is printed.
zpty -w typed "$2() { print -r -- 'be''gin' \"\$0 \$*\" 'e''nd' }; echo rea''dy"
while zpty -r typed line; do [[ $line == *ready* ]] && break; done
zpty -w typed "$3"$'\t'
while zpty -r typed line; do
    if [[ $line == *"begin "*" end"* ]]; then
        print -r -- ${${line#*begin }% end*}
        break
    fi
done
zpty -d typed
