// SPDX-License-Identifier: MIT

package replay

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// words are the words of a line that are not read yet.
type words struct {
	at   string // FILE:LINE
	text string
	left []word
	end  word    // after the last word
	lost bool    // the rest cannot be parsed, so there are no more errors
	errs []error // one for each mistake
}

type word struct {
	column int // 1 is the first
	text   string
	end    bool // the position after the last word
}

func (w word) String() string {
	if w.end {
		return "the end of the line"
	}
	return strconv.Quote(w.text)
}

func (l *words) errorf(w word, format string, args ...any) {
	if l.lost {
		return
	}
	at := fmt.Sprintf("%s:%d: ", l.at, w.column)
	l.errs = append(l.errs, errors.New(at+fmt.Sprintf(format, args...)))
}

// expected reports that w is not what was expected, and skips the rest of the line.
func (l *words) expected(what string, w word) {
	l.errorf(w, "expected %s, found %v", what, w)
	l.lost = true
}

// split cuts the text into words and removes the comment.
func (l *words) split() {
	rest := l.text
	column := func() int { return len(l.text) - len(rest) + 1 }
	for {
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" || rest[0] == '#' {
			break
		}
		w := word{column: column()}
		for rest != "" && rest[0] != ' ' && rest[0] != '\t' {
			part := rest
			if rest[0] == '"' {
				closing := strings.IndexByte(rest[1:], '"')
				if closing < 0 {
					l.errorf(word{column: column()}, `expected a closing "`)
					l.lost, rest = true, ""
					break
				}
				w.text += rest[1 : 1+closing]
				rest = rest[closing+2:]
				continue
			}
			if i := strings.IndexAny(rest, " \t\""); i >= 0 {
				part = rest[:i]
			}
			w.text += part
			rest = rest[len(part):]
		}
		l.left = append(l.left, w)
	}
	l.text = strings.TrimRight(l.text[:len(l.text)-len(rest)], " \t")
	l.end = word{column: len(l.text) + 1, end: true}
}

// next returns the next word. what describes it for an error.
func (l *words) next(what string) word {
	if len(l.left) == 0 {
		l.expected(what, l.end)
		return l.end
	}
	w := l.left[0]
	l.left = l.left[1:]
	return w
}

// skip reads the next word if it is text, and reports whether it was.
func (l *words) skip(text string) bool {
	if len(l.left) == 0 || l.left[0].text != text {
		return false
	}
	l.left = l.left[1:]
	return true
}

// keyword reads a word that must be text.
func (l *words) keyword(text string) {
	if w := l.next(strconv.Quote(text)); w.text != text {
		l.expected(strconv.Quote(text), w)
	}
}

// settings reads the rest of the line, each word a key=value. set returns false for an unknown key;
// keys lists the known ones.
func (l *words) settings(keys string, set func(key string, value word) bool) {
	seen := map[string]bool{}
	for len(l.left) > 0 && !l.lost {
		w := l.next("")
		key, text, ok := strings.Cut(w.text, "=")
		switch {
		case !ok:
			l.expected(keys+", with = and a value", w)
		case seen[key]:
			l.errorf(w, "%s is given twice", key)
		case !set(key, word{column: w.column + len(key) + 1, text: text}):
			l.errorf(w, "unknown key %q, expected %s", key, keys)
		}
		seen[key] = true
	}
}

// count reads a whole number.
func (l *words) count(w word, least, most int64) int64 {
	n, err := strconv.ParseInt(w.text, 10, 64)
	if err != nil || n < least || n > most {
		l.errorf(w, "expected a whole number, %d to %d, found %v", least, most, w)
	}
	return n
}

// maxTime keeps the moments of a script in the range of the meters.
const maxTime = 50 * 365 * 24 * time.Hour

// time reads a moment, and returns how long it is after Start.
func (l *words) time() int64 {
	w := l.next("a time such as 1.5s")
	d, err := time.ParseDuration(w.text)
	if date, wrong := time.Parse(time.RFC3339, w.text); wrong == nil {
		d, err = date.Sub(Start), nil
	}
	if err != nil || d < -maxTime || d > maxTime || d%time.Microsecond != 0 {
		l.expected("a time such as 1.5s, in whole microseconds, of up to 50 years", w)
	}
	return d.Microseconds()
}

func (l *words) duration(w word) int64 {
	d, err := time.ParseDuration(w.text)
	if err != nil || d < 0 || d%time.Microsecond != 0 {
		l.errorf(w, "expected a duration such as 1.5s, in whole microseconds, found %v", w)
	}
	return d.Microseconds()
}
