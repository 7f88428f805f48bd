// SPDX-License-Identifier: MIT

package main

import "strings"

// pictures returns all pictures that the report has figures for.
func (r *report) pictures() (all []*picture) {
	plenty := globalName(plentyWorkload, 256)
	many, three := globalName(uniformWorkload, 256), globalName(threeWorkload, 256)
	for _, p := range []struct {
		name, title string
		panels      []*panel
	}{
		{"local", "Decisions in one process, ns each: shorter is better", []*panel{
			r.bars("hot key, all allowed, 1 thread", threadsName(localPlenty, 1), nsDecision),
			r.bars("hot key, all allowed, 2 threads", threadsName(localPlenty, 2), nsDecision),
			r.bars("1 M keys, uniform, 1 thread", threadsName(localUniform, 1), nsDecision),
			r.bars("1 M keys, uniform, 2 threads", threadsName(localUniform, 2), nsDecision),
		}},
		{"memory", "What a million keys take, in bytes a key: shorter is better", []*panel{
			r.bars("1 M keys, their text not counted", fillingName(1), bytesKey),
		}},
		{"middleware", "Time of a request over the bare handler: shorter is better", []*panel{
			r.bars("one thread, no network", middlewareWorkload, nsOver),
		}},
		{"redis", "Decisions a second in one Redis, 256 callers: longer is better", []*panel{
			r.bars("hot key, all allowed", plenty, decisionRate),
			r.bars("1 M keys, uniform", many, decisionRate),
			r.bars("3 rules: all, account, device", three, decisionRate),
		}},
		{"gateway", "Requests a second, wrk over 64 connections: longer is better", []*panel{
			r.bars("passed on to an upstream", passedWorkload, requestRate),
			r.bars("refused with 503", refusedByServer, requestRate),
		}},
		{"growth", "How the cost of a decision grows", []*panel{
			r.lines("URLs in the configuration: ns a decision, 1 thread", growingURLs, nsDecision),
			r.lines("keys that are remembered: ns a decision, 1 thread", growingKeys, nsDecision),
			r.lines("gateways on one Redis, hot key, all allowed, 256 callers: decisions/s", growingGateways+", "+plenty, decisionRate),
			r.lines("gateways on one Redis, 1 M keys, 256 callers: decisions/s", growingGateways+", "+many, decisionRate),
			r.lines("gateways on one Redis, 1 M keys, 256 callers: p99", growingGateways+", "+many, p99),
		}},
	} {
		made := &picture{name: p.name, title: p.title}
		for _, panel := range p.panels {
			if panel.most() > 0 {
				made.panels = append(made.panels, panel)
			}
		}
		if len(made.panels) > 0 {
			all = append(all, made)
		}
	}
	return all
}

// picture is some panels below one another.
type picture struct {
	name, title string
	panels      []*panel
}

// panel is bars, one a mark, or lines, which join the marks of the same name.
type panel struct {
	title  string
	format func(float64) string
	grows  bool // lines
	marks  []mark
}

// mark is a figure.
type mark struct {
	name string
	kind kind
	size int // of what grows
	*series
}

// bars returns a panel of a workload.
func (r *report) bars(title, workload, figure string) *panel {
	p := &panel{title: title, format: formatOf(figure)}
	for _, rows := range r.workloads() {
		for _, m := range rows {
			if s := m.Figures[figure]; m.Workload == workload && s != nil {
				p.marks = append(p.marks, mark{m.System, m.Kind, 0, s})
			}
		}
	}
	return p
}

// lines returns a panel of a workload that grows.
func (r *report) lines(title, workload, figure string) *panel {
	p := &panel{title: title, format: formatOf(figure), grows: true}
	for _, m := range r.Rows {
		if s := m.Figures[figure]; m.Workload == workload && m.Line != "" && s != nil {
			p.marks = append(p.marks, mark{m.Line, m.Kind, m.Size, s})
		}
	}
	return p
}

// description says what a picture shows to who cannot see it.
func (p *picture) description() string {
	var parts []string
	for _, panel := range p.panels {
		var marks []string
		for _, m := range panel.marks {
			name := m.name
			if panel.grows {
				name += " at " + sizeText(m.size)
			}
			marks = append(marks, name+" "+panel.format(m.Median))
		}
		parts = append(parts, panel.title+": "+strings.Join(marks, ", ")+".")
	}
	return strings.Join(parts, " ")
}
