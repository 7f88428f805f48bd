// SPDX-License-Identifier: MIT

package convert

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/bounds"
)

// A configuration of nginx has at most this depth of blocks and included files. An include can stand for a large file
// many times, so the directives have a bound too.
const (
	mostDepth      = 64
	mostDirectives = 200_000
)

// directive is a directive of nginx, and its block if it has one.
type directive struct {
	name   string
	args   []string
	block  []*directive
	file   string
	line   int
	column int
}

// arg returns an argument, or "" if it is missing.
func (d *directive) arg(i int) string {
	if i >= 0 && i < len(d.args) {
		return d.args[i]
	}
	return ""
}

// fault returns a message about the directive.
func (d *directive) fault(format string, args ...any) config.Error {
	return config.Error{File: d.file, Line: d.line, Column: d.column, Message: fmt.Sprintf(format, args...)}
}

// parser reads the files of a configuration.
type parser struct {
	files  []file
	count  int          // of directives
	unread []*directive // includes whose files are not there
}

// file is one file of a configuration.
type file struct{ name, text string }

// parse returns the directives of a configuration, and the includes that it has not read. In the output of
// "nginx -T" the included files are there, and replace the directive.
func parse(name, text string) (list, unread []*directive, err error) {
	if len(text) > bounds.MaxFile {
		return nil, nil, fmt.Errorf("%s: expected at most %d KiB, found more", name, bounds.MaxFile>>10)
	}
	p := parser{files: split(name, text)}
	list, err = p.read(p.files[0], 0)
	return list, p.unread, err
}

// split returns the files in the output of "nginx -T", or the text as one file.
func split(name, text string) (files []file) {
	const mark, colon = "# configuration file ", ":\n"
	if !strings.HasPrefix(text, mark) {
		return []file{{name, text}}
	}
	for part := range strings.SplitSeq("\n"+text, "\n"+mark) {
		if of, text, ok := strings.Cut(part, colon); ok {
			files = append(files, file{cmp.Or(of, name), text})
		}
	}
	if len(files) == 0 {
		return []file{{name, text}}
	}
	return files
}

// read returns the directives of a file.
func (p *parser) read(f file, depth int) ([]*directive, error) {
	return p.block(&lexer{file: f.name, text: f.text, line: 1}, nil, depth)
}

// block returns the directives up to the end of a block, or of a file if of is nil.
func (p *parser) block(l *lexer, of *directive, depth int) (list []*directive, err error) {
	if depth > mostDepth {
		return nil, l.mistake(l.here(), fmt.Sprintf("expected at most %d blocks and files inside each other", mostDepth))
	}
	var d *directive
	for {
		t, err := l.next()
		switch {
		case err != nil:
			return nil, err
		case t.kind == 'w' && d == nil:
			if p.count++; p.count > mostDirectives {
				return nil, l.mistake(t, fmt.Sprintf("expected at most %d directives, found more", mostDirectives))
			}
			d = &directive{name: t.text, file: l.file, line: t.line, column: t.column}
			continue
		case t.kind == 'w':
			d.args = append(d.args, t.text)
			continue
		case d == nil && (t.kind == ';' || t.kind == '{'):
			return nil, l.mistake(t, "expected a directive before "+t.text)
		case d != nil && (t.kind == '}' || t.kind == 0):
			return nil, l.mistake(token{line: d.line, column: d.column}, "the directive "+shown(d.name)+" does not end in ; or a block")
		case t.kind == '}' && of == nil:
			return nil, l.mistake(t, "this } closes no block")
		case t.kind == 0 && of != nil:
			return nil, l.mistake(token{line: of.line, column: of.column}, "the block of "+shown(of.name)+" is not closed")
		case t.kind == '}' || t.kind == 0:
			return list, nil
		}
		if t.kind == '{' && strings.HasSuffix(d.name, "_by_lua_block") {
			err = l.lua()
		} else if t.kind == '{' {
			d.block, err = p.block(l, d, depth+1)
		}
		if err != nil {
			return nil, err
		}
		if d.name == "include" && t.kind == ';' {
			included, err := p.include(d, depth)
			if err != nil {
				return nil, err
			}
			list = append(list, included...)
		} else {
			list = append(list, d)
		}
		d = nil
	}
}

// include returns the directives of the files that an include names.
func (p *parser) include(d *directive, depth int) (list []*directive, err error) {
	pattern := d.arg(0)
	if !path.IsAbs(pattern) {
		pattern = path.Join(path.Dir(p.files[0].name), pattern)
	}
	found := false
	for _, f := range p.files[1:] {
		if ok, err := path.Match(pattern, f.name); err != nil || !ok {
			continue
		}
		found = true
		more, err := p.read(f, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	// A dump has every file, so a pattern without one matches nothing. These files of nginx have no limits.
	usual := path.Base(pattern) == "mime.types" || strings.HasSuffix(pattern, "_params") || strings.HasSuffix(pattern, "fastcgi.conf")
	if !found && len(p.files) == 1 && !usual {
		p.unread = append(p.unread, d)
	}
	return list, nil
}
