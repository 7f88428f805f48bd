// SPDX-License-Identifier: MIT

package main

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
)

// completionCommand prints a script that lets a shell complete command lines.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is the end of what --help prints.
func (completionCommand) Help() string {
	return `For this session of bash: source <(diana completion bash). For zsh: source <(diana completion zsh). For fish: diana completion fish | source.`
}

// Run prints the script.
func (c completionCommand) Run(o *command.Output) error {
	o.Printf("%s", completionScripts[c.Shell])
	return o.Failed
}

// completionScripts ask the hidden command "complete" for words. Where it has none, the shell completes
// names of files.
var completionScripts = map[string]string{
	"bash": `# Completion of diana's command lines for bash.
_diana() {
	local IFS=$'\n'
	local words
	words=$("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
	COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o bashdefault -o default -F _diana diana
`,
	"zsh": `#compdef diana
# Completion of diana's command lines for zsh.
_diana() {
	local -a candidates
	candidates=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -n "${candidates[*]}" ]]; then
		compadd -a candidates
	else
		_files
	fi
}
if [[ "${funcstack[1]}" == _diana ]]; then
	_diana "$@"
else
	compdef _diana diana
fi
`,
	"fish": `# Completion of diana's command lines for fish.
function __diana_complete
	set -l words (commandline --tokenize --cut-at-cursor --current-process) (commandline --current-token --cut-at-cursor)
	$words[1] complete -- $words[2..-1] 2>/dev/null
end
complete --command diana --arguments '(__diana_complete)'
`,
}

// completeCommand prints the words that can follow on a command line, one a line. The scripts of
// completionCommand use it.
type completeCommand struct {
	Words []string `arg:"" optional:"" help:"The command line behind the program's name. The last word is incomplete, and may be empty."`
}

// Run prints the words.
func (c completeCommand) Run(ctx *kong.Context, o *command.Output) error {
	for _, word := range candidates(ctx.Model.Node, c.Words) {
		o.Printf("%s\n", word)
	}
	return o.Failed
}

// candidates returns the words that can replace the last word of a command line: commands, flags, or the values
// of a flag. It returns none where the word is the name of a file or a free text.
func candidates(node *kong.Node, words []string) (list []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	var valueOf *kong.Flag // the flag that the next word is the value of
	for _, word := range words[:len(words)-1] {
		if valueOf != nil {
			valueOf = nil
			continue
		}
		if strings.HasPrefix(word, "-") {
			valueOf = flagOf(node, word)
			continue
		}
		if i := slices.IndexFunc(node.Children, func(c *kong.Node) bool { return c.Name == word }); i >= 0 {
			node = node.Children[i]
		}
	}
	switch {
	case valueOf != nil:
		list = valueOf.EnumSlice()
	case strings.HasPrefix(last, "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				list = append(list, "--"+f.Name)
			}
		}
	case len(node.Children) > 0:
		for _, c := range node.Children {
			if !c.Hidden {
				list = append(list, c.Name)
			}
		}
	default:
		for _, p := range node.Positional {
			list = append(list, p.EnumSlice()...)
		}
	}
	return slices.DeleteFunc(list, func(word string) bool { return word == "" || !strings.HasPrefix(word, last) })
}

// flagOf returns the flag whose value follows a word, or nil.
func flagOf(node *kong.Node, word string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if word == "--"+f.Name && !f.IsBool() && !f.IsCounter() {
				return f
			}
		}
	}
	return nil
}
