// SPDX-License-Identifier: MIT

package answer

import "bytes"

// events reads server-sent events that arrive in pieces, by the rules of the WHATWG. It passes on the
// data of each event, and ignores its other fields.
type events struct {
	data func(p []byte) // the next bytes of the data of an event
	end  func()         // the event is complete

	state   eventState
	name    int  // bytes of "data" that the name of the field has
	hasData bool // the event has had a line of data
	afterCR bool // the last byte was a carriage return
	begin   int  // where in the bytes of this write the present event begins; 0: in them or before
}

// eventState is the part of a line that a byte belongs to.
type eventState uint8

const (
	inName eventState = iota
	afterColon
	inData
	inOther // a comment, or another field
)

const dataName = "data"

var newline = []byte{'\n'}

func (e *events) write(p []byte) {
	e.begin = 0
	for size := len(p); len(p) > 0; {
		c := p[0]
		if secondOfCRLF := e.afterCR && c == '\n'; secondOfCRLF || c == '\n' || c == '\r' {
			if !secondOfCRLF && e.endLine() {
				e.begin = size - len(p) + 1
			}
			e.afterCR = c == '\r'
			p = p[1:]
			continue
		}
		e.afterCR = false
		n := 1
		switch e.state {
		case inName:
			e.scanName(c)
		case afterColon:
			if e.state = inData; c != ' ' {
				n = 0
			}
		case inData:
			n = lineLength(p)
			e.data(p[:n])
		case inOther:
			n = lineLength(p)
		}
		p = p[n:]
	}
}

// scanName scans a byte of the name of a field, or the colon behind it.
func (e *events) scanName(c byte) {
	switch {
	case e.name == len(dataName) && c == ':':
		e.state = afterColon
		e.beginData()
	case e.name < len(dataName) && c == dataName[e.name]:
		e.name++
	default:
		e.state = inOther
	}
}

// beginData begins a line of data. A newline joins it with an earlier one of the same event.
func (e *events) beginData() {
	if e.hasData {
		e.data(newline)
	}
	e.hasData = true
}

// endLine ends a line, and reports whether it was the empty one that ends an event.
func (e *events) endLine() (last bool) {
	switch {
	case e.state == inName && e.name == len(dataName): // a field without a colon has an empty value
		e.beginData()
	case e.state == inName && e.name == 0: // an empty line ends the event
		if e.hasData {
			e.end()
		}
		e.hasData, last = false, true
	}
	e.state, e.name = inName, 0
	return last
}

// lineLength returns the number of bytes before the end of the line.
func lineLength(p []byte) int {
	if i := bytes.IndexByte(p, '\n'); i >= 0 {
		p = p[:i]
	}
	if i := bytes.IndexByte(p, '\r'); i >= 0 {
		p = p[:i]
	}
	return len(p)
}
