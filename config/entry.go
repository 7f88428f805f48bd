// SPDX-License-Identifier: MIT

package config

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
	"go.yaml.in/yaml/v4"
)

// Bounds of texts, in bytes.
const (
	longestURL   = 2048
	longestName  = 128
	longestActor = 256
	longestZone  = 64
)

var algorithmKeys = []string{"unit", "burst", "queue", "slices", "align", "warmup", "charge", "wait", "zone",
	"min", "measure", "hold", "keep", "least", "priority", "priorities"} // see limit.Algorithm.Keys

// actorKinds are the kinds of actors that every configuration can use.
var actorKinds = []string{"all", "account", "device", "ip"}

// readEntries reads a list of entries. An empty list is valid and limits nothing.
func readEntries(v value) {
	v.form = entriesForm
	r, n := v.r, min(v.len(), bounds.MaxEntries)
	if v.node.Kind == yaml.SequenceNode && n == 0 && r.config.Remote == nil {
		r.warn(v.node, "there are no entries, so nothing is limited")
	}
	r.config.Limits = slices.Grow(r.config.Limits, n)
	if len(r.urls) == 0 {
		r.urls = make(map[string]written, n)
	}
	for e := range v.list {
		readEntry(e)
	}
}

func readEntry(v value) {
	if !v.r.entries.add(v.node, bounds.MaxEntries) {
		return
	}
	defer v.r.forget(len(v.r.fields))
	m := v.mapping()
	if m.fields != nil && !m.get("rules").given() && !m.get("bandwidth").given() {
		m.fail("an entry lacks rules")
	}
	c := v.r.config
	n := len(c.Limits)
	c.Limits = append(c.Limits, rule.Entry{URL: readPattern(m.get("url")), Bandwidth: readBandwidth(m.get("bandwidth")), Divert: readDivert(m.get("divert"))})
	e := &c.Limits[n]
	readRefusal(m.get("refusal"), e)
	items := m.get("rules")
	tooMany := items.len() > bounds.MaxRules+1
	if !tooMany {
		e.Rules = v.r.roomFor(items.len())
	}
	places := v.r.places[:0]
	for item := range items.list {
		at := len(e.Rules)
		e.Rules = append(e.Rules, rule.Rule{})
		readRule(item, &e.Rules[at])
		if v.r.mistakes > 0 || tooMany || v.r.rules.beyond != nil { // nobody reads the rules
			e.Rules = nil
			continue
		}
		noteEnd(item, &e.Rules[at], [2]int{n, at})
		places = append(places, [2]int{item.node.Line, item.node.Column})
	}
	v.r.warnOfAlike(places, e.Rules)
	v.r.adviseTogether(places, e.Rules)
	v.r.places = places
}

// roomAtOnce is for how many rules a reader makes room at once. Room for one rule takes a tenth more memory.
const roomAtOnce = 512

// roomFor returns room for n rules.
func (r *reader) roomFor(n int) []rule.Rule {
	if n > len(r.room) {
		r.room = make([]rule.Rule, min(max(n, len(r.config.Limits)), roomAtOnce))
	}
	if n > len(r.room) {
		return make([]rule.Rule, 0, n)
	}
	room := r.room[:0:n]
	r.room = r.room[n:]
	return room
}

// noteEnd notes the place of a rule that needs to learn how a request ends, see Config.EndPlace.
func noteEnd(item value, r *rule.Rule, at [2]int) {
	key := "charge"
	switch {
	case r.Algorithm.Held:
		key = "algo"
	case len(r.Charge) == 0:
		return
	}
	n := item.node // where the default algorithm counts slots
	for k := range item.pairs {
		if k.Value == key {
			n = k
		}
	}
	if item.r.config.ends == nil {
		item.r.config.ends = map[[2]int]Error{}
	}
	item.r.config.ends[at] = item.r.place(n.Line, n.Column, "")
}

// warnOfAlike warns about unnamed rules that only their order distinguishes, once for each shape.
// places are the lines and columns of the rules.
func (r *reader) warnOfAlike(places [][2]int, rules []rule.Rule) {
	if len(rules) < 2 {
		return
	}
	type group struct{ n, line int }
	groups := map[string]group{}
	for i := range rules {
		if rules[i].Name != "" {
			continue
		}
		shape := names.Shape(&rules[i])
		g := groups[shape]
		if g.n++; g.n == 1 {
			g.line = places[i][0]
		}
		groups[shape] = g
		if g.n == 2 {
			r.warnings.Add(r.place(places[i][0], places[i][1], "this rule and the rule in line %d have no name and the same actor, unit and algo: "+
				"a reload that adds, moves or removes one can mix up their counters, so give each a name", g.line))
		}
	}
}

// readPattern reads the url of an entry. Two entries that cover the same requests are an error.
func readPattern(v value) rule.Pattern {
	text, ok := v.text()
	if !ok {
		return rule.Pattern{}
	}
	var p rule.Pattern
	if err := p.UnmarshalText([]byte(text)); err != nil {
		v.fail("%v", err)
		return p
	}
	if at := strings.IndexByte(text, '/'); at >= 0 {
		if strange := paths.Check(text[at:]); strange != nil {
			v.r.warn(v.node, "url: %s: %v, so Diana refuses a request with such a path, unless paths.strange is judge", yamltext.Quote(text), strange)
		}
	}
	same := p.Same()
	here := written{text, v.node.Line}
	if first, ok := v.r.urls[same]; ok {
		v.fail("url %q covers the same requests as %q in line %d, expected one entry with all the rules", text, first.text, first.line)
	} else {
		v.r.urls[same] = here
	}
	if !v.r.config.Paths.ExactCase {
		if other := foldsTo(v.r, same, here); other.line > 0 && other.text != text {
			v.r.warn(v.node, "url %s and url %s in line %d differ in letter case alone, so both evaluate the same requests, unless paths.case is exact", yamltext.Quote(text), yamltext.Quote(other.text), other.line)
		}
	}
	if p.Method == "ANY" || p.Method == "ALL" { // the words of other programs
		v.r.warn(v.node, "url: the method %s stands for itself alone; a url without a method covers all", p.Method)
	}
	for segment := range strings.SplitSeq(p.Path, "/") {
		if strings.Contains(segment, "*") || len(segment) > 1 && segment[0] == ':' { // the syntax of other programs
			v.r.warn(v.node, "url: %s stands for itself alone; a url covers all below it, and {name} is any one segment", yamltext.Quote(segment))
			break
		}
	}
	return p
}

// foldsTo returns the last url before one that differs from it in letter case at most; its line is 0 if
// there is none. same is Pattern.Same of the url. Only urls with capital letters need a second table.
func foldsTo(r *reader, same string, url written) written {
	small := strings.ToLower(same)
	other := r.folded[small]
	if small == same {
		return other
	}
	r.folded[small] = url
	if lower := r.urls[small]; lower.line > other.line {
		return lower
	}
	return other
}

// readQueue reads the length of a queue for limit.Limit. In a configuration 0 means no queue, and a
// missing key means the default.
func readQueue(v value) int64 {
	n := v.whole()
	if v.given() && n == 0 {
		return -1
	}
	return n
}

// readRule reads a rule into made, which is zero.
func readRule(v value, made *rule.Rule) {
	if !v.r.rules.add(v.node, bounds.MaxRules) {
		return
	}
	defer v.r.forget(len(v.r.fields))
	before := v.r.mistakes
	m := v.mapping()
	if m.fields == nil {
		return
	}
	algo, ok := readAlgorithm(m)
	unit, calendar := readUnit(m.get("unit"))
	*made = rule.Rule{
		Name:  readRuleName(m.get("name")),
		Actor: readActor(m.get("actor")),
		Limit: limit.Limit{
			N:          readN(m.get("rpu"), algo),
			Unit:       unit,
			Calendar:   calendar,
			Zone:       readZone(m.get("zone")),
			Burst:      m.get("burst").whole(),
			Queue:      readQueue(m.get("queue")),
			Slices:     m.get("slices").whole(),
			AlignFirst: m.get("align").choice() == 1,
			Warmup:     m.get("warmup").duration(),
			Keep:       readPercent(m.get("keep")),
			Least:      readPercent(m.get("least")),
		},
		Measure:   readMeasure(m.get("measure")),
		HoldBegin: m.get("hold").choice() == 1,
		OnError:   rule.OnError(m.get("on_error").choice()),
		Shadow:    m.get("mode").choice() == 1,
		Cost:      readCost(m.get("cost"), mostCost(algo)),
		Wait:      m.get("wait").duration(),
	}
	if charge := m.get("charge"); charge.is(allStatuses) {
		made.ChargeAll = true
	} else if charge.given() {
		charge.form = statusesForm
		made.Charge = readStatuses(charge)
	}
	if c := m.r.config; m.get("cost").given() && !c.Credentials.Required {
		if by := c.proved(made.Actor); by != "" {
			m.failKey("cost", anonymous, by)
		}
	}
	scope, scoped := readScope(m.get("scope"))
	made.Scope = scope
	if m.get("on_error").given() && scoped {
		if elsewhere := m.r.words.otherScopes(); !slices.Contains(elsewhere, string(scope)) {
			m.failKey("on_error", "on_error has no meaning for scope %s; it is for scope %s", scope, strings.Join(elsewhere, ", "))
		}
	}
	made.Algorithm = algo
	if !ok {
		readVariants(m, made, false)
		return
	}
	refuseOtherKeys(m, algo)
	checkCalendar(m, made)
	if algo.Uses("measure") {
		readAdaptive(m, made)
	}
	if made.Cost.Answer != "" && !algo.Uses("charge") {
		m.failKey("cost", "cost: algo %s cannot change a charge when the answer is known; it is for algorithms with charge, such as TB and W", algo.Name())
	}
	if !algo.Uses("unit") {
		made.Limit.Unit = 0
	}
	if v.r.mistakes > before {
		readVariants(m, made, false)
		return
	}
	meter, err := algo.New(made.Limit)
	if err != nil {
		v.fail("algo %s cannot keep this rule: %s", algo.Name(), strings.TrimPrefix(err.Error(), "limit: "))
	}
	readVariants(m, made, err == nil)
	if v.r.mistakes > before {
		return
	}
	if n := made.Cost.N; n > 1 && made.Limit.N > 0 && !meter.Peek(limit.State{}, someTime, n).Allowed {
		m.get("cost").fail("cost: a limit of %[2]d never allows a request of cost %[1]d, expected a lower cost or a larger limit",
			n, cmp.Or(made.Limit.Burst, made.Limit.N))
	}
	advise(m, made)
}

// readScope reads the name of a scope.
func readScope(v value) (rule.Scope, bool) {
	if !v.given() {
		return rule.Local, true
	}
	names := v.r.words.scopes()
	for _, name := range names {
		if v.is(name) {
			return rule.Scope(name), true
		}
	}
	v.expected(yamltext.Join(names, "or"), names...)
	return rule.Local, false
}

// readAlgorithm reads the algorithm of a rule. The default is the first of the vocabulary.
func readAlgorithm(m mapping) (limit.Algorithm, bool) {
	v, known := m.get("algo"), m.r.words.Algorithms
	switch {
	case !v.given() && len(known) > 0:
		return known[0], true
	case !v.given():
		m.fail("a rule lacks algo, and there is none by default")
		return limit.Algorithm{}, false
	}
	if v.scalar() {
		if a, ok := m.r.words.algorithm(v.node.Value); ok {
			return a, true
		}
	}
	var names []string
	for _, a := range known {
		names = append(names, a.Names...)
	}
	v.expected(yamltext.Join(names, "or"), names...)
	return limit.Algorithm{}, false
}

// refuseOtherKeys reports the keys of a rule that its algorithm does not use.
func refuseOtherKeys(m mapping, algo limit.Algorithm) {
	for i := range m.fields {
		key := m.known.list[i].name
		if m.fields[i].key == nil || !slices.Contains(algorithmKeys, key) || algo.Uses(key) {
			continue
		}
		m.failKey(key, "%s has no meaning for algo %s; it is for %s", key, algo.Name(), m.r.words.usersOf(key))
	}
}

// readRuleName reads the name of a rule. Two rules with one name are an error.
func readRuleName(v value) string {
	name, ok := v.text()
	switch {
	case !ok:
	case strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }):
		v.expected("characters that can be printed")
	case v.r.names[name] > 0:
		v.fail("name: %s is also the name of the rule in line %d, expected another", yamltext.Quote(name), v.r.names[name])
	default:
		v.r.names[name] = v.node.Line
	}
	return name
}

// readActor reads what a rule counts by: one actor, or a list of actors that count together.
func readActor(v value) []rule.Actor {
	if !v.given() {
		return []rule.Actor{rule.All}
	}
	if v.node.Kind != yaml.SequenceNode {
		a, _ := readOneActor(v)
		return []rule.Actor{a}
	}
	v.form = listForm{of: "actors", called: "actor", item: actorTogether}
	if n := v.len(); n < 2 || n > bounds.MaxActors {
		v.fail("actor: expected one, or a list of two or three, found a list of %d", n)
		return nil
	}
	return distinctActors(v.list, func(_ value, a rule.Actor) string {
		return fmt.Sprintf("actor: %s cannot be in a list", a.Kind)
	})
}

// distinctActors reads a list of different actors. wrong returns the error for a kind that the
// list cannot have.
func distinctActors(list iter.Seq[value], wrong func(value, rule.Actor) string) []rule.Actor {
	var actors []rule.Actor
	seen := map[rule.Actor]bool{}
	for item := range list {
		a, ok := readOneActor(item)
		if !ok {
			continue
		}
		if !item.form.(actorForm).is(a.Kind) {
			item.fail("%s", wrong(item, a))
		} else if seen[a] {
			item.fail("%s: expected each once, found %s again", item.key, a)
		}
		seen[a] = true
		actors = append(actors, a)
	}
	return actors
}

func readOneActor(v value) (rule.Actor, bool) {
	text, ok := v.text()
	if !ok {
		return rule.Actor{}, false
	}
	a, err := v.r.words.ParseActor(text)
	if err != nil {
		v.fail("%v", err)
		return a, false
	}
	for _, k := range v.r.words.Verifiers {
		if k.Kind == a.Kind && !v.r.remote && !v.r.config.Credentials.has(k.Kind) {
			v.r.warn(v.node, "%s: no credential can prove %s, because identity says nothing of %ss; the client's address counts", v.key, a, k.Kind)
		}
	}
	if a.Kind == "header" && slices.ContainsFunc(keyFields, func(f string) bool { return strings.EqualFold(f, a.Name) }) {
		v.r.warn(v.node, "%s: %s is a secret, and the log, /status and the console show actors; key:account counts by a key that identity verifies", v.key, a)
	}
	return a, true
}

// maxLogged is the largest number of times that a sliding log stores for an actor.
const maxLogged = 1 << 16

// advise warns about a valid rule that is probably not what the author meant.
func advise(m mapping, made *rule.Rule) {
	adviseReservation(m, made)
	r, n := m.r, made.Limit.N
	if made.Scope == rule.Global && !slices.Contains(m.r.words.Scopes, string(rule.Global)) {
		does := map[rule.OnError]string{
			rule.Share:  "each process counts for itself",
			rule.Whole:  "each process counts for itself",
			rule.Open:   "the rule lets every request pass",
			rule.Closed: "the rule refuses every request",
		}[made.OnError]
		n := m.get("scope").node
		r.withoutRedis.Add(r.place(n.Line, n.Column, "scope: global without redis, so %s (on_error: %s)", does, made.OnError))
	}
	if made.Limit.Calendar == "total" && made.Scope == rule.Local {
		r.warn(m.get("unit").node, "unit: total begins anew when this process restarts, because the scope is local")
	}
	if made.Algorithm.Name() == "SL" && n > maxLogged {
		r.warn(m.get("rpu").node, "rpu: SL remembers at most %d moments of an actor (768 KiB), and is less exact if an actor needs more; SW needs far less",
			maxLogged)
	}
	if made.Algorithm.Name() == "LB" && n > 0 {
		unit := made.Limit.Unit.Microseconds()
		step := (unit + n - 1) / n
		if most := bounds.MaxQueueWait.Microseconds() / step; made.Limit.Queue > most {
			r.warn(m.get("queue").node, "queue: no request waits longer than %v, so at this rate at most %d wait", bounds.MaxQueueWait, most)
		}
	}
}
