// SPDX-License-Identifier: MIT

package page

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/diana-limiter/diana/bench/measure"
)

// The picture shows Diana beside rivals and floors as ratios on a logarithmic scale: a line for
// each comparison with a rival, a dot for each other system. The best rival's dot is coloured: blue
// if Diana is better, orange if the rival is. The picture has a background of its own, which
// follows the reader's colour scheme, and needs neither scripts nor fonts.

const (
	pictureWidth  = 1200
	lineHeight    = 22
	headingHeight = 36 // of a group's name
	plotTop       = 88
	plotLeft      = 590
	plotWidth     = 340

	lowestRatio, highestRatio = 0.05, 1000.0 // dots beyond are drawn at the edge
)

const pictureStyle = `
text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1f2328}
.title{font-size:17px;font-weight:600}
.heading,.ratio{font-weight:600}
.small{font-size:12px;fill:#59636e}
.ground{fill:#fff;stroke:#d1d9e0}
.better{fill:#0969da;fill-opacity:.05}
.grid,.rule{stroke:#d1d9e0}
.diana{stroke:#0969da;stroke-width:2}
.rival{fill:#818b98}
.ahead{fill:#0969da}
.behind{fill:#bc4c00}
.floor{fill:none;stroke:#818b98}
@media (prefers-color-scheme:dark){
text{fill:#f0f6fc}
.small{fill:#9198a1}
.ground{fill:#0d1117;stroke:#3d444d}
.better{fill:#4493f8;fill-opacity:.08}
.grid,.rule{stroke:#3d444d}
.diana{stroke:#4493f8}
.rival{fill:#9198a1}
.ahead{fill:#4493f8}
.behind{fill:#db6d28}
.floor{stroke:#9198a1}
}
`

// section is the comparisons of a group.
type section struct {
	title string
	lines []comparison
}

// comparison is a line of the picture.
type comparison struct {
	what string
	dots []dot // the best rival is the last one
}

// best returns the dot of the best rival.
func (c *comparison) best() dot { return c.dots[len(c.dots)-1] }

// dot says how many times better than another system Diana is.
type dot struct {
	system string
	kind   measure.Kind
	ratio  float64
}

// sections returns a line for each figure that a line of a table compares with rivals.
func (p *Page) sections(r *measure.Report) (all []section) {
	seen := map[string]bool{}
	for _, g := range p.Groups {
		c := section{title: g.Title}
		for _, l := range g.Lines {
			name := l.workload + ": " + l.figure.Name + ", " + strings.TrimPrefix(l.system, "Diana ")
			ours := r.Find(l.workload, l.system)
			if ours.Series(l.figure) == nil || l.figure.Better == measure.Neither || seen[name] {
				continue
			}
			if best := r.Best(ours, l.figure, p.sameWork); best != nil {
				seen[name] = true
				c.lines = append(c.lines, p.newComparison(r, name, l.figure, ours, best))
			}
		}
		if len(c.lines) > 0 {
			all = append(all, c)
		}
	}
	return all
}

func (p *Page) newComparison(r *measure.Report, what string, f measure.Figure, ours, best *measure.Row) comparison {
	c := comparison{what: what}
	for _, m := range r.Rows {
		if m.Workload == ours.Workload && m != best && (m.Kind == measure.Floor || p.sameWork(ours, m)) {
			if ratio := measure.TimesBetter(ours, m, f); ratio != 0 {
				c.dots = append(c.dots, dot{m.System, m.Kind, ratio})
			}
		}
	}
	c.dots = append(c.dots, dot{best.System, best.Kind, measure.TimesBetter(ours, best, f)})
	return c
}

// canvas is an SVG picture, drawn from the top to the bottom.
type canvas struct{ svg bytes.Buffer }

func (c *canvas) draw(format string, args ...any) { fmt.Fprintf(&c.svg, format+"\n", args...) }

func (c *canvas) text(x float64, y int, class, anchor, text string) {
	c.draw(`<text x="%.1f" y="%d" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, html.EscapeString(text))
}

// scale draws the background of the plot, down to bottom, and the ratios above it.
func (c *canvas) scale(bottom int) {
	c.draw(`<rect class="better" x="%.1f" y="%d" width="%.1f" height="%d"/>`, place(1), plotTop, place(highestRatio)-place(1), bottom-plotTop)
	for tick := 0.1; tick <= highestRatio; tick *= 10 {
		class := "grid"
		if tick > 0.5 && tick < 5 {
			class = "diana"
		}
		c.draw(`<path class="%s" d="M%.1f %dV%d"/>`, class, place(tick), plotTop, bottom)
		c.text(place(tick), plotTop-8, "small", "middle", fmt.Sprintf("%g x", math.Round(tick*10)/10))
	}
}

// line draws a comparison at the height y.
func (c *canvas) line(y int, line *comparison) {
	c.text(plotLeft-16, y+4, "small", "end", line.what)
	for i, d := range line.dots {
		class, radius := string(d.kind), 4
		if i == len(line.dots)-1 {
			if class, radius = "ahead", 5; d.ratio < 1 {
				class = "behind"
			}
		}
		c.draw(`<circle class="%s" cx="%.1f" cy="%d" r="%d"><title>%s: %s</title></circle>`,
			class, place(d.ratio), y, radius, html.EscapeString(d.system), measure.RatioText(d.ratio))
	}
	c.text(plotLeft+plotWidth+74, y+4, "ratio", "end", measure.RatioText(line.best().ratio))
	c.text(plotLeft+plotWidth+84, y+4, "small", "start", line.best().system)
}

// picture returns the picture as SVG.
func (p *Page) picture(r *measure.Report) []byte {
	const title = "How many times better Diana is than other systems"
	all := p.sections(r)
	bottom := plotTop
	for _, c := range all {
		bottom += headingHeight + lineHeight*len(c.lines)
	}
	c := &canvas{}
	c.draw(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">`, pictureWidth, bottom+14)
	c.draw("<title id=\"title\">%s</title>\n<style>%s</style>", title, pictureStyle)
	c.draw(`<rect class="ground" x=".5" y=".5" width="%d" height="%d" rx="6"/>`, pictureWidth-1, bottom+13)
	c.text(20, 32, "title", "start", title)
	c.text(20, 54, "small", "start", "Right of the line at 1 x Diana is better. The coloured dot is the best rival, named at the right.")
	c.text(20, 72, "small", "start", "Grey dots are other rivals. Rings are floors, which do less work. Dots beyond the scale are at its edge.")
	c.scale(bottom)
	y := plotTop
	for _, s := range all {
		c.text(20, y+headingHeight-12, "heading", "start", s.title)
		c.draw(`<path class="rule" d="M20 %dH%d"/>`, y+headingHeight-5, pictureWidth-20)
		y += headingHeight
		for i := range s.lines {
			c.line(y+lineHeight/2, &s.lines[i])
			y += lineHeight
		}
	}
	c.draw("</svg>")
	return c.svg.Bytes()
}

// place returns where a ratio is on the scale.
func place(ratio float64) float64 {
	ratio = min(max(ratio, lowestRatio), highestRatio)
	return plotLeft + plotWidth*math.Log(ratio/lowestRatio)/math.Log(highestRatio/lowestRatio)
}
