package main

import (
	"bytes"
	"go/scanner"
	"go/token"
	"path/filepath"
	"strings"
)

// reader returns the function that extracts the prose of a file, or nil for a file without prose.
func reader(name string) func([]byte) []byte {
	switch filepath.Ext(name) {
	case ".md":
		return func(text []byte) []byte { return text }
	case ".go":
		return goComments
	case ".lua":
		return func(text []byte) []byte { return lineComments(text, "--") }
	case ".yaml", ".yml", ".sh":
		return func(text []byte) []byte { return lineComments(text, "#") }
	}
	if filepath.Base(name) == "Makefile" || filepath.Base(filepath.Dir(name)) == "scripts" {
		return func(text []byte) []byte { return lineComments(text, "#") }
	}
	return nil
}

// goComments returns the comments of a Go file as Markdown with the same line numbers. A comment
// behind code becomes a heading, because it must not join the comment of the next line.
func goComments(text []byte) []byte {
	lines := make([]string, bytes.Count(text, []byte("\n"))+1)
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, text, nil, scanner.ScanComments)
	code := 0 // the last line with code
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return []byte(strings.Join(lines, "\n"))
		}
		line := file.Line(pos)
		if tok != token.COMMENT {
			if tok != token.SEMICOLON || literal != "\n" {
				code = line + strings.Count(literal, "\n")
			}
			continue
		}
		literal = strings.TrimSuffix(strings.TrimPrefix(literal, "/*"), "*/")
		for i, l := range strings.Split(literal, "\n") {
			if l, ok := strings.CutPrefix(l, "//"); ok && l != "" && l[0] != ' ' && l[0] != '\t' {
				continue // a directive, such as go:embed
			}
			l = strings.TrimPrefix(strings.TrimPrefix(l, "//"), " ")
			if line == code {
				l = "# " + l
			}
			lines[line-1+i] = l
		}
	}
}

// lineComments returns the lines that are comments as Markdown with the same line numbers.
func lineComments(text []byte, mark string) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, mark) && !strings.HasPrefix(line, "#!") {
			out.WriteString(strings.TrimPrefix(strings.TrimLeft(line, mark), " "))
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}
