// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
)

// manCommand writes the manual pages of the program and its commands. Packages use it.
type manCommand struct {
	To   string `required:"" type:"existingdir" placeholder:"DIR" help:"Folder to write the pages into."`
	Date string `placeholder:"DATE" help:"Date that the pages show."`
}

// Run writes diana.1, and a page such as diana-serve.1 for each command.
func (c manCommand) Run(ctx *kong.Context, o *command.Output) error {
	info, _ := debug.ReadBuildInfo()
	version, _, _ := command.Build(info)
	root := ctx.Model.Node
	nodes := []*kong.Node{root}
	for i := 0; i < len(nodes); i++ { // the commands of commands too
		node := nodes[i]
		nodes = append(nodes, node.Children...)
		if node.Hidden {
			continue
		}
		name := pageName(node)
		text := manualPage(node, root, c.Date, version)
		if err := os.WriteFile(filepath.Join(c.To, name+".1"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return o.Failed
}

// pageName returns the name of a command's page, without the number of the manual's section.
func pageName(node *kong.Node) string {
	if node.Parent == nil {
		return node.Name
	}
	return pageName(node.Parent) + "-" + node.Name
}

// manualPage returns the manual page of the program or of a command, in the language of troff.
func manualPage(node, root *kong.Node, date, version string) string {
	var page strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&page, format+"\n", args...) }
	add(`.TH "%s" 1 "%s" "diana %s" "Diana"`, strings.ToUpper(pageName(node)), troff(date), troff(version))
	add(".SH NAME\n%s \\- %s", troff(pageName(node)), troff(strings.TrimSuffix(node.Help, ".")))
	synopsis := node.Summary()
	if node.Parent == nil {
		synopsis = "diana COMMAND [flags]"
	} else if !strings.HasPrefix(synopsis, root.Name) {
		synopsis = root.Name + " " + synopsis
	}
	add(".SH SYNOPSIS\n%s", troff(synopsis))
	add(".SH DESCRIPTION\n%s", troff(node.Help))
	for paragraph := range strings.SplitSeq(node.Detail, "\n\n") {
		if paragraph != "" {
			add(".PP\n%s", troff(paragraph))
		}
	}
	if len(node.Positional) > 0 {
		add(".SH ARGUMENTS")
	}
	for _, p := range node.Positional {
		add(".TP\n\\fI%s\\fR\n%s", troff(p.Name), troff(p.Help))
	}
	add(".SH OPTIONS")
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			add(".TP\n\\fB%s\\fR\n%s", troff(f.String()), troff(f.Help))
		}
	}
	if len(node.Children) > 0 {
		add(".SH COMMANDS")
		for _, c := range node.Children {
			if !c.Hidden {
				add(".TP\n\\fB%s\\fR(1)\n%s", troff(pageName(c)), troff(c.Help))
			}
		}
	}
	if node.Parent != nil {
		add(".SH SEE ALSO\n\\fB%s\\fR(1)", troff(pageName(node.Parent)))
	}
	add(".SH EXIT STATUS\n0 on success, 1 after a failure or for an invalid file, 2 for a mistake on the command line.")
	return page.String()
}

// troff returns a text that troff prints as it is.
func troff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`).Replace(strings.TrimSpace(text))
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
