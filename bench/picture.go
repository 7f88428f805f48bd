// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strings"
)

// The picture shows Diana beside rivals and floors as ratios on a logarithmic scale: a line for
// each comparison with a rival, a dot for each other system. It has a background of its own,
// which follows the reader's colour scheme, and needs neither scripts nor fonts.

const (
	pictureWidth = 1100
	lineHeight   = 22
	plotTop      = 66
	plotLeft     = 525
	plotWidth    = 330

	lowestRatio, highestRatio = 0.05, 1000.0 // dots beyond are drawn at the edge
)

const pictureStyle = `
text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1f2328}
.title{font-size:15px;font-weight:600}
.small{font-size:12px;fill:#59636e}
.ground{fill:#fff;stroke:#d1d9e0}
.grid{stroke:#d1d9e0}
.diana{stroke:#0969da;stroke-width:2}
.rival{fill:#59636e}
.floor{fill:none;stroke:#59636e}
@media (prefers-color-scheme:dark){
text{fill:#f0f6fc}
.small{fill:#9198a1}
.ground{fill:#0d1117;stroke:#3d444d}
.grid{stroke:#3d444d}
.diana{stroke:#4493f8}
.rival{fill:#9198a1}
.floor{stroke:#9198a1}
}
`

// comparison is a line of the picture.
type comparison struct {
	what string
	dots []dot
	best dot // the best rival
}

// dot says how many times better than another system Diana is.
type dot struct {
	system string
	kind   kind
	ratio  float64
}

// comparisons returns a line for each figure that a line of a table compares with rivals.
func comparisons(r *report) (all []comparison) {
	seen := map[string]bool{}
	for _, g := range allGroups() {
		for _, l := range g.lines {
			name := l.workload + ": " + l.figure.name + ", " + strings.TrimPrefix(l.system, "Diana ")
			ours := r.find(l.workload, l.system)
			if ours.of(l.figure) == nil || l.figure.better == neither || seen[name] {
				continue
			}
			if best := r.best(ours, l.figure, alike); best != nil {
				seen[name] = true
				all = append(all, newComparison(r, name, l.figure, ours, best))
			}
		}
	}
	return all
}

func newComparison(r *report, what string, f figure, ours, best *row) comparison {
	c := comparison{what: what}
	for _, m := range r.Rows {
		d := dot{m.System, m.Kind, timesBetter(ours, m, f)}
		if m.Workload != ours.Workload || d.ratio == 0 || m.Kind != floor && !alike(ours, m) {
			continue
		}
		c.dots = append(c.dots, d)
		if m == best {
			c.best = d
		}
	}
	return c
}

// picture returns the picture as SVG.
func picture(r *report) []byte {
	const title = "How many times better Diana is than other systems"
	all := comparisons(r)
	bottom := plotTop + lineHeight*len(all)
	var b bytes.Buffer
	text := func(x float64, y int, class, anchor, text string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" class="%s" text-anchor="%s">%s</text>`+"\n", x, y, class, anchor, html.EscapeString(text))
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">`+"\n", pictureWidth, bottom+30)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n<style>%s</style>\n", title, pictureStyle)
	fmt.Fprintf(&b, `<rect class="ground" x=".5" y=".5" width="%d" height="%d" rx="6"/>`+"\n", pictureWidth-1, bottom+29)
	text(16, 26, "title", "start", title)
	text(16, 46, "small", "start", "Right of the blue line Diana is better. Filled dots: rivals. Rings: floors, which do less work. At the right: the best rival.")
	for tick := 0.1; tick <= highestRatio; tick *= 10 {
		class := "grid"
		if tick > 0.5 && tick < 5 {
			class = "diana"
		}
		fmt.Fprintf(&b, `<path class="%s" d="M%.1f %dV%d"/>`+"\n", class, place(tick), plotTop, bottom)
		text(place(tick), bottom+18, "small", "middle", fmt.Sprintf("%g x", math.Round(tick*10)/10))
	}
	for i, c := range all {
		y := plotTop + lineHeight*i + lineHeight/2
		text(plotLeft-12, y+4, "small", "end", c.what)
		for _, d := range c.dots {
			fmt.Fprintf(&b, `<circle class="%s" cx="%.1f" cy="%d" r="4"><title>%s: %s</title></circle>`+"\n",
				d.kind, place(d.ratio), y, html.EscapeString(d.system), ratioText(d.ratio))
		}
		text(plotLeft+plotWidth+12, y+4, "small", "start", ratioText(c.best.ratio)+" "+c.best.system)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// place returns where a ratio is on the scale.
func place(ratio float64) float64 {
	ratio = min(max(ratio, lowestRatio), highestRatio)
	return plotLeft + plotWidth*math.Log(ratio/lowestRatio)/math.Log(highestRatio/lowestRatio)
}
