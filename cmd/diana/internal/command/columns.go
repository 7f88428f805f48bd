// SPDX-License-Identifier: MIT

package command

import (
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Columns returns a table with aligned columns, two spaces apart. The columns from first to last are aligned right.
// A terminal shows many characters of Chinese, Japanese and Korean in two cells, for which package text/tabwriter
// leaves one.
func Columns(table [][]string, first, last int) string {
	if len(table) == 0 {
		return ""
	}
	widths := make([]int, len(table[0]))
	for _, row := range table {
		for i, cell := range row {
			widths[i] = max(widths[i], widthOf(cell))
		}
	}
	var b strings.Builder
	for _, row := range table {
		line := ""
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-widthOf(cell))
			if first <= i && i <= last {
				cell = pad + cell
			} else {
				cell += pad
			}
			if i > 0 {
				line += "  "
			}
			line += cell
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// widthOf returns how many cells of a terminal a line takes.
func widthOf(line string) (n int) {
	for _, r := range line {
		n += cellsOf(r)
	}
	return n
}

// Clipped returns as much of a line as fits into so many cells.
func Clipped(line string, most int) string {
	for i, r := range line {
		if most -= cellsOf(r); most < 0 {
			return line[:i]
		}
	}
	return line
}

// cellsOf returns how many cells of a terminal a character takes.
func cellsOf(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) { // shown above or around the character before
		return 0
	}
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// Legible returns text, quoted if it has characters that cannot be printed.
func Legible(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		return strconv.Quote(text)
	}
	return text
}
