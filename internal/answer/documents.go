// SPDX-License-Identifier: MIT

package answer

import (
	"slices"

	"github.com/diana-limiter/diana/internal/jsonscan"
)

// longestText is the longest text of a count, in bytes. Longer ones are unreadable.
const longestText = 256

// documents reads one JSON document after another, for some of the sources.
type documents struct {
	scan  *jsonscan.Scanner
	parts []*part
	over  bool // the rest of the event is ignored, or of the body

	lines bool // documents follow each other directly, instead of one in each event
	list  bool // a document is an element of a list
	begun bool // a byte of the document has arrived
}

// part is what one source has said.
type part struct {
	source Source
	format *format
	counts [maxFields]count

	from  *documents // nil: the source is not in a JSON document
	first int        // number of the first pointer in from.scan
}

// typePointer is the first pointer of all documents.
const typePointer = "/type"

func newDocuments(parts []*part, lines, list bool) *documents {
	d := &documents{parts: parts, lines: lines, list: list}
	pointers := append(make([]string, 0, 16), typePointer)
	for _, p := range parts {
		p.from, p.first = d, len(pointers)
		for _, field := range p.format.fields {
			pointers = append(pointers, field...)
		}
	}
	d.scan = jsonscan.New(longestText, pointers...)
	return d
}

// write reads the next bytes. It reports whether they complete an event that ends a stream.
func (d *documents) write(p []byte) (ends bool) {
	for len(p) > 0 && !d.over {
		if d.list && !d.begun {
			if isSeparator(p[0]) {
				p = p[1:]
				continue
			}
			d.begun = true
		}
		n, complete := d.scan.Write(p)
		if p = p[n:]; !complete {
			break
		}
		ends = ends || d.endsStream()
		if d.over = true; d.lines && !d.scan.Broken() {
			d.next()
		}
	}
	return ends
}

// isSeparator reports whether a byte is outside of the elements of a list.
func isSeparator(c byte) bool {
	return c == '[' || c == ',' || c == ']' || c == ' ' || c == '\n' || c == '\r' || c == '\t'
}

// endsStream reports whether the document is an event that ends a stream.
func (d *documents) endsStream() bool {
	v := d.scan.Value(0)
	return v.Kind == jsonscan.String && !d.scan.Broken() && slices.ContainsFunc(d.parts, func(p *part) bool {
		return slices.Contains(p.format.ends, string(v.Text))
	})
}

// next begins another document.
func (d *documents) next() {
	for _, p := range d.parts {
		p.counts = p.latest()
	}
	d.scan.Reset()
	d.over, d.begun = false, false
}

// latest returns the counts, with those of the document that is being read.
func (p *part) latest() [maxFields]count {
	if p.from == nil {
		return p.counts
	}
	var said [maxFields]count
	i := p.first
	for k, field := range p.format.fields {
		for range field {
			said[k] = said[k].or(countOf(p.from.scan.Value(i), max(p.source.scale, 1)))
			i++
		}
		if k > 0 && k == p.format.spare && said[k].state == unreadable {
			said[k] = count{}
		}
	}
	if said == [maxFields]count{} {
		return p.counts
	}
	for k, old := range p.counts {
		switch {
		case said[k].state == unreadable: // what has been counted so far stays
			said[k].n = max(said[k].n, old.n)
		case said[k].state == absent && !p.format.replaces:
			said[k] = old
		}
	}
	return said
}

// usage returns what the source has said. It is not ok if the source has said nothing, or something
// that is not a count.
func (p *part) usage() (u Usage, ok bool) {
	var n [maxFields]int64
	state := absent
	for k, c := range p.latest() {
		n[k], state = c.n, max(state, c.state)
	}
	return p.format.usage(n), state == known
}
