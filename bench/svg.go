// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
)

// Pictures are drawn on a ground of their own, which follows the colours that the reader
// prefers, so that they can be read on any page. They need no script and no font but what
// the reader has.

const (
	pictureWidth = 760
	margin       = 16
	labelWidth   = 300
	valueWidth   = 90
	barHeight    = 20
	titleHeight  = 34
	plotHeight   = 190
	plotLeft     = 80
	plotRight    = 220 // room for the lines' names
)

const pictureStyle = `
text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1f2328}
.title{font-size:15px;font-weight:600}
.panel{font-weight:600}
.small{font-size:12px;fill:#59636e}
.ground{fill:#fff;stroke:#d1d9e0}
.grid{stroke:#d1d9e0}
.spread{stroke:#1f2328;fill:none}
.bar.diana,.dot.diana{fill:#0969da}
.bar.rival,.dot.rival{fill:#9aa4ae}
.bar.floor,.dot.floor{fill:#fff;stroke:#818b98}
.line{fill:none;stroke-width:2}
.line.diana{stroke:#0969da}
.line.rival{stroke:#818b98}
.line.floor{stroke:#818b98;stroke-dasharray:2 3}
.name.diana{font-weight:600}
@media (prefers-color-scheme:dark){
text{fill:#f0f6fc}
.small{fill:#9198a1}
.ground{fill:#0d1117;stroke:#3d444d}
.grid{stroke:#3d444d}
.spread{stroke:#f0f6fc}
.bar.diana,.dot.diana{fill:#4493f8}
.bar.rival,.dot.rival{fill:#656c76}
.bar.floor,.dot.floor{fill:#0d1117;stroke:#9198a1}
.line.diana{stroke:#4493f8}
.line.rival,.line.floor{stroke:#9198a1}
}
`

// canvas is a picture that is being drawn, from top to bottom.
type canvas struct {
	bytes.Buffer
	y float64
}

func (c *canvas) draw(format string, args ...any) {
	_, _ = fmt.Fprintf(&c.Buffer, format+"\n", args...)
} // it fails never

func (c *canvas) text(x, y float64, class, anchor, text string) {
	c.draw(`<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, html.EscapeString(text))
}

// draw returns the picture as SVG.
func (p *picture) draw() []byte {
	var c canvas
	c.y = margin + 12
	c.text(margin, c.y, "title", "start", p.title)
	c.y += 18
	c.text(margin, c.y, "small", "start", "Blue: Diana. Grey: rivals. Outlined or dotted: floors. Thin strokes: from the lowest round to the highest.")
	for _, panel := range p.panels {
		c.y += titleHeight
		c.text(margin, c.y, "panel", "start", panel.title)
		c.y += 10
		if panel.grows {
			panel.drawLines(&c)
		} else {
			panel.drawBars(&c)
		}
	}
	height := c.y + margin
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%[1]d" height="%.0[2]f" role="img" aria-labelledby="title desc">`+"\n", pictureWidth, height)
	fmt.Fprintf(&out, "<title id=\"title\">%s</title>\n<desc id=\"desc\">%s</desc>\n<style>%s</style>\n", html.EscapeString(p.title), html.EscapeString(p.description()), pictureStyle)
	fmt.Fprintf(&out, `<rect class="ground" x=".5" y=".5" width="%d" height="%.0f" rx="6"/>`+"\n", pictureWidth-1, height-1)
	out.Write(c.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// most returns the largest of all rounds.
func (p *panel) most() (most float64) {
	for _, m := range p.marks {
		most = max(most, slices.Max(m.Rounds))
	}
	return most
}

func (p *panel) drawBars(c *canvas) {
	left := float64(margin + labelWidth)
	scale := (pictureWidth - margin - valueWidth - left) / p.most()
	for _, m := range p.marks {
		middle := c.y + barHeight/2
		c.text(left-8, middle+4.5, "name "+string(m.kind), "end", m.name)
		c.draw(`<rect class="bar %s" x="%.1f" y="%.1f" width="%.1f" height="%d"/>`, m.kind, left, c.y+3, max(m.Median*scale, 1), barHeight-6)
		low, high := left+max(slices.Min(m.Rounds), 0)*scale, left+max(slices.Max(m.Rounds), 0)*scale
		c.draw(`<path class="spread" d="M%.1f %.1fH%.1fM%.1f %.1fv6M%.1f %.1fv6"/>`, low, middle, high, low, middle-3, high, middle-3)
		c.text(max(high, left)+8, middle+4.5, "small", "start", p.format(m.Median))
		c.y += barHeight
	}
}

// niceStep returns the distance of some four lines up to most.
func niceStep(most float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(most/4)))
	for _, n := range []float64{1, 2, 2.5, 5} {
		if n*unit*5 > most {
			return n * unit
		}
	}
	return 10 * unit
}

func (p *panel) drawLines(c *canvas) {
	var sizes []int
	var names []string
	for _, m := range p.marks {
		if !slices.Contains(sizes, m.size) {
			sizes = append(sizes, m.size)
		}
		if !slices.Contains(names, m.name) {
			names = append(names, m.name)
		}
	}
	slices.Sort(sizes)
	c.y += 8
	top, bottom := c.y, c.y+plotHeight
	left, right := float64(plotLeft), float64(pictureWidth-plotRight)
	step := niceStep(p.most())
	limit := step * math.Ceil(p.most()/step)
	x := func(size int) float64 {
		return left + 20 + (right-left-40)*float64(slices.Index(sizes, size))/float64(max(len(sizes)-1, 1))
	}
	y := func(v float64) float64 { return bottom - v/limit*plotHeight }
	for v := 0.0; v <= limit+step/2; v += step {
		c.draw(`<path class="grid" d="M%.1f %.1fH%.1f"/>`, left, y(v), right)
		c.text(left-8, y(v)+4, "small", "end", p.format(v))
	}
	for _, size := range sizes {
		c.text(x(size), bottom+18, "small", "middle", sizeText(size))
	}
	var ends []lineEnd
	for _, name := range names {
		path, last := "", mark{}
		for _, m := range p.marks {
			if m.name != name {
				continue
			}
			word := "L"
			if path == "" {
				word = "M"
			}
			path += fmt.Sprintf("%s%.1f %.1f", word, x(m.size), y(m.Median))
			last = m
		}
		c.draw(`<path class="line %s" d="%s"/>`, last.kind, path)
		for _, m := range p.marks {
			if m.name == name {
				c.draw(`<path class="spread" d="M%.1f %.1fV%.1f"/>`, x(m.size), y(slices.Min(m.Rounds)), y(slices.Max(m.Rounds)))
				c.draw(`<circle class="dot %s" cx="%.1f" cy="%.1f" r="3.5"/>`, m.kind, x(m.size), y(m.Median))
			}
		}
		ends = append(ends, lineEnd{y(last.Median), last})
	}
	slices.SortFunc(ends, func(a, b lineEnd) int { return int(a.y - b.y) })
	for at, i := top-16, 0; i < len(ends); i++ { // none over another
		at = max(at+16, ends[i].y)
		c.text(right+4, at+4, "name "+string(ends[i].kind), "start", ends[i].name)
	}
	c.y = bottom + 24
}

// lineEnd is where a line ends, beside which its name stands.
type lineEnd struct {
	y float64
	mark
}
