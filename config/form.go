// SPDX-License-Identifier: MIT

package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/diana-limiter/diana/internal/answer"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/bytesize"
	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/rule"
)

// A form describes the values that a key accepts. Tables give each key its form. The methods of value
// read values by their form, and a schema shows it. So each key, word and bound is in one place.
type form interface{ draw(d *drawing) object }

// object is a JSON Schema, or a part of one.
type object = map[string]any

// A drawing is a schema under construction.
type drawing struct {
	words Vocabulary
	defs  object // the named forms
}

// keys is the form of a mapping.
type keys struct {
	of   string // name of the mapping in messages
	name string // name in the schema
	list []key

	// together returns further constraints for the schema. It may be nil.
	together func(d *drawing) object
}

type key struct {
	name     string
	form     form
	about    string // description for the author
	also     string // another spelling of the name; empty means none
	required bool
	with     string // another key that must be given too; empty means none
}

func (k keys) names() []string {
	names := make([]string, len(k.list))
	for i, key := range k.list {
		names[i] = key.name
	}
	return names
}

// index returns the index of the key with that name or spelling, or -1. It copies no key, because a
// configuration has many mappings.
func (k keys) index(name string) int {
	for i := range k.list {
		if key := &k.list[i]; name == key.name || name == key.also && name != "" {
			return i
		}
	}
	return -1
}

func (k keys) mapping() keys { return k }

func (k keys) draw(d *drawing) object {
	ref := object{"$ref": "#/$defs/" + k.name}
	if d.defs[k.name] != nil {
		return ref
	}
	properties, with := object{}, object{}
	var required []string
	var all []object
	for _, key := range k.list {
		drawn := key.form.draw(d)
		drawn["description"] = key.about
		properties[key.name] = drawn
		switch {
		case key.also != "":
			other := maps.Clone(drawn)
			properties[key.also] = other
			if key.required {
				all = append(all, object{"oneOf": []object{given(key.name, anything), given(key.also, anything)}})
			}
		case key.required:
			required = append(required, key.name)
		}
		if key.with != "" {
			with[key.name] = []string{key.with}
		}
	}
	drawn := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		drawn["required"] = required
	}
	if len(with) > 0 {
		drawn["dependentRequired"] = with
	}
	if k.together != nil {
		all = append(all, k.together(d))
	}
	if len(all) > 0 {
		drawn["allOf"] = all
	}
	d.defs[k.name] = drawn
	return ref
}

// listForm is the form of a list.
type listForm struct {
	of       string // name of the items in messages
	called   string // name of an item in messages; if empty, that of the list
	item     form
	nonempty bool
	distinct bool
	most     int // items in a schema; 0: any number

	otherwise []string
}

func (f listForm) draw(d *drawing) object {
	drawn := object{"type": "array", "items": f.item.draw(d)}
	if f.nonempty {
		drawn["minItems"] = 1
	}
	if f.distinct {
		drawn["uniqueItems"] = true
	}
	if f.most > 0 {
		drawn["maxItems"] = f.most
	}
	if len(f.otherwise) > 0 {
		drawn["default"] = f.otherwise
	}
	return drawn
}

// mapForm is the form of a mapping whose keys are texts of one form.
type mapForm struct{ key, item form }

func (f mapForm) draw(d *drawing) object {
	return object{"type": "object", "propertyNames": f.key.draw(d), "additionalProperties": f.item.draw(d)}
}

// textForm is the form of a text.
type textForm struct {
	longest   int    // in bytes
	pattern   string // for schemas, valid in both Go and JavaScript; empty means any text
	not       string // the same, for texts that are not allowed
	otherwise string
}

func (f textForm) bytes() int { return f.longest }

// accepts reports whether a text has the form, which has a pattern.
func (f textForm) accepts(text string) bool {
	return text != "" && len(text) <= f.longest && regexp.MustCompile(f.pattern).MatchString(text)
}

func (f textForm) draw(*drawing) object {
	drawn := object{"type": "string", "minLength": 1, "maxLength": f.longest}
	if f.pattern != "" {
		drawn["pattern"] = f.pattern
	}
	if f.not != "" {
		drawn["not"] = object{"pattern": f.not}
	}
	if f.otherwise != "" {
		drawn["default"] = f.otherwise
	}
	return drawn
}

// wholeForm is the form of a whole number.
type wholeForm struct{ least, most, otherwise int64 }

func (f wholeForm) draw(*drawing) object {
	drawn := object{"type": "integer", "minimum": f.least, "maximum": f.most}
	if f.otherwise != 0 {
		drawn["default"] = f.otherwise
	}
	return drawn
}

// numberForm is the form of a number from 0, with at most six digits behind the point.
type numberForm struct{ most, otherwise float64 }

// The schema does not bound the digits: by multipleOf, ajv rejects 0.1, because it divides binary fractions.
func (f numberForm) draw(*drawing) object {
	return object{"type": "number", "minimum": 0, "maximum": f.most, "default": f.otherwise}
}

// durationForm is the form of a length of time.
type durationForm struct{ least, most, otherwise time.Duration }

const durationPattern = `^[+]?(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`

func (f durationForm) draw(*drawing) object {
	drawn := object{"type": "string", "pattern": durationPattern}
	if f.least == 0 { // 0 needs no unit, so YAML reads it as a number
		return object{"anyOf": []object{{"enum": []any{0, "0"}}, drawn}, "default": f.otherwise.String()}
	}
	if f.otherwise != 0 {
		drawn["default"] = f.otherwise.String()
	}
	return drawn
}

// truthForm is the form of true and false.
type truthForm struct{ otherwise bool }

func (f truthForm) draw(*drawing) object { return object{"type": "boolean", "default": f.otherwise} }

// choiceForm is the form of one of several words. The first is the default.
type choiceForm []string

func (f choiceForm) draw(*drawing) object { return object{"enum": []string(f), "default": f[0]} }

// scopeForm is the form of the name of a scope.
type scopeForm struct{}

func (scopeForm) draw(d *drawing) object {
	names := d.words.scopes()
	return object{"enum": names, "default": names[0]}
}

// secretForm is the form of a secret.
type secretForm struct{}

func (secretForm) bytes() int { return longestSecret }

func (secretForm) draw(d *drawing) object {
	drawn := textForm{longest: longestSecret}.draw(d)
	drawn["anyOf"] = []object{
		{"not": object{"pattern": "^(" + fromEnv + "|" + fromFile + ")"}},
		{"pattern": "^" + fromEnv + "[A-Za-z_][A-Za-z0-9_]*$"},
		{"pattern": "^" + fromFile + `[^\n\x00]+$`},
	}
	return drawn
}

// algorithmForm is the form of the name of an algorithm.
type algorithmForm struct{}

func (algorithmForm) draw(d *drawing) object {
	names := []string{} // not nil, because null is not a list in JSON
	for _, a := range d.words.Algorithms {
		names = append(names, a.Names...)
	}
	drawn := object{"anyOf": []object{{"enum": names}, {"type": "string", "pattern": anyCase(names...)}}}
	if len(d.words.Algorithms) > 0 {
		drawn["default"] = d.words.Algorithms[0].Name()
	}
	return drawn
}

// anyCase returns a pattern for words in any letter case. It uses no flag for that, because Go and
// JavaScript write such flags differently.
func anyCase(words ...string) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte('|')
		}
		for _, c := range w {
			if lower, upper := unicode.ToLower(c), unicode.ToUpper(c); lower != upper {
				b.WriteString("[" + string(upper) + string(lower) + "]")
			} else {
				b.WriteString(regexp.QuoteMeta(string(c)))
			}
		}
	}
	return "^(" + b.String() + ")$"
}

// unitForm is the form of a unit of time.
type unitForm struct{}

func (unitForm) draw(d *drawing) object {
	return object{"anyOf": []object{{"enum": append(append([]string{}, d.words.unitNames()...), d.words.calendars()...)}, {"type": "string", "pattern": durationPattern}}, "default": names.Unit(defaultUnit)}
}

// actorForm is the form of an actor.
type actorForm struct {
	textForm
	not      []string // kinds that it cannot be
	together bool     // it may be a list of those who count as one
}

// is reports whether it can be an actor of a kind.
func (f actorForm) is(kind string) bool { return !slices.Contains(f.not, kind) }

func (f actorForm) draw(d *drawing) object {
	names := slices.DeleteFunc(slices.Clone(actorKinds), func(kind string) bool { return !f.is(kind) })
	if f.is("account") {
		names = append(names, "actor")
	}
	forms := []object{nil}
	for _, k := range d.words.Actors {
		switch {
		case !k.Named:
			names = append(names, k.Kind)
		case k.Kind == "header":
			forms = append(forms, object{"type": "string", "pattern": "^header:[" + tokens + "]+$"})
		case isBody(k):
			forms = append(forms, object{"type": "string", "pattern": "^body:" + pointerPattern + "$"})
		default:
			forms = append(forms, object{"type": "string", "pattern": "^" + regexp.QuoteMeta(k.Kind) + ":."})
		}
	}
	forms[0] = object{"enum": names}
	if f.together {
		forms = append(forms, object{
			"type": "array", "items": actorTogether.draw(d), "minItems": 2, "maxItems": bounds.MaxActors, "uniqueItems": true,
		})
	}
	return object{"anyOf": forms}
}

// oneOrListForm is the form of a value, or of a list of such values.
type oneOrListForm struct{ listForm }

func (f oneOrListForm) draw(d *drawing) object {
	return object{"anyOf": []object{f.item.draw(d), f.listForm.draw(d)}}
}

// wordForm is the form of one of several words, which is a text.
type wordForm struct{ words []string }

func (f wordForm) bytes() int { return longestName }

func (f wordForm) draw(*drawing) object { return object{"enum": f.words} }

// namingForm is the form of what names a class or a priority.
type namingForm struct{ textForm }

func (f namingForm) draw(d *drawing) object {
	forms := []object{f.textForm.draw(d)}
	for _, k := range d.words.Actors {
		if k.Proved {
			forms = append(forms, object{"type": "string", "pattern": "^" + regexp.QuoteMeta(k.Kind) + ":."})
		}
	}
	return object{"anyOf": forms}
}

// anything is the schema of every value.
const anything = true

// given is the schema of a mapping that has a key, and under it a value of a schema. The key is among the
// properties even if its value can be anything, because ajv's strict mode expects that of a required key.
func given(key string, value any) object {
	return object{"required": []string{key}, "properties": object{key: value}}
}

// something says that a mapping is not empty.
func something(*drawing) object { return object{"minProperties": 1} }

// costForm is the form of what a request counts.
type costForm struct{}

func (costForm) draw(d *drawing) object {
	return object{"default": 1, "anyOf": []object{
		costKeys.draw(d),
		{"type": "integer", "minimum": 1, "maximum": int64(bounds.MaxWindowN)},
		{"type": "string", "maxLength": longestActor, "pattern": "^(header|client):[" + tokens + "]+$"},
	}}
}

// reservation is the form of what a request reserves: a number, or its place in the body.
type reservation struct {
	wholeForm
	textForm
}

func (f reservation) draw(d *drawing) object {
	return object{"default": f.wholeForm.otherwise, "anyOf": []object{f.wholeForm.draw(d), f.textForm.draw(d), reserveKeys.draw(d)}}
}

// outputForm is the form of where a request names its most tokens of output.
type outputForm struct{}

func (outputForm) draw(d *drawing) object {
	return object{"anyOf": []object{{"const": allNames}, pointerForm.draw(d), outputList.draw(d)}}
}

// reserveTogether says what parts of a reservation need.
func reserveTogether(*drawing) object {
	set, bytes := given("set", object{"const": true}), given("input", object{"const": inBytes})
	named := given("output", anything)
	return object{"allOf": []object{
		{"if": given("most", anything), "then": set},
		{"if": set, "then": named},
		{"if": object{"anyOf": []object{given("expand", anything), given("add", anything)}}, "then": bytes},
		{"if": given("bound", object{"const": "strict"}), "then": object{"allOf": []object{set, bytes}}},
	}}
}

// weightsTogether says what weights by the model need, and what means nothing beside them.
func weightsTogether(*drawing) object {
	plain := object{}
	for _, k := range modelWeights.list {
		plain[k.name] = false
	}
	by := given("by", anything)
	return object{"allOf": []object{
		{"if": by, "then": given("models", anything)},
		{"if": by, "then": object{"properties": plain}},
		{"if": object{"anyOf": []object{given("models", anything), given("unknown", anything)}}, "then": by},
	}}
}

// allStatuses is the charge of a rule that counts all statuses.
const allStatuses = "all"

// chargeForm is the form of the statuses that count.
type chargeForm struct{}

func (chargeForm) draw(d *drawing) object {
	return object{"anyOf": []object{{"const": allStatuses}, statusesForm.draw(d)}}
}

// costTogether says what costs only some answers have.
func costTogether(*drawing) object {
	only := func(key object, answers ...string) object {
		return object{"if": key, "then": object{"properties": object{"answer": object{"enum": answers}}}}
	}
	usage := given("include_usage", object{"const": true})
	fromBody := given("reserve", object{"type": "string"})
	inBody := object{"properties": object{"answer": object{"type": "string", "pattern": "^(" + strings.Join(answer.Formats, "|") + "|/.*)$"}}}
	return object{"allOf": []object{
		{"if": given("weights", anything), "then": inBody},
		{"if": object{"allOf": []object{given("weights", anything), given("answer", object{"type": "string", "pattern": "^/"})}}, "then": given("reserve", object{"type": "object"})},
		only(usage, openAI),
		{"if": given("or", anything), "then": fromBody},
		{"if": given("scale", anything), "then": object{"properties": object{"answer": object{"type": "string", "pattern": "^/"}}}},
		{"if": object{"anyOf": []object{given("after", anything), given("reserve", object{"type": "object"})}}, "then": inBody},
	}}
}

// rateForm is the form of a number of bytes a second.
type rateForm struct{}

func (rateForm) draw(*drawing) object {
	return object{"anyOf": []object{
		{"type": "integer", "minimum": bounds.MinBandwidth, "maximum": bounds.MaxBandwidth},
		{"type": "string", "pattern": "^[1-9][0-9]{0,5}k$|^(1000|[1-9][0-9]{0,2})m$|^1000000k$"},
	}}
}

// sizeForm is the form of a size of memory, at most 1 GiB.
type sizeForm struct{ otherwise int64 }

func (f sizeForm) draw(*drawing) object {
	return object{"default": bytesize.String(f.otherwise), "anyOf": []object{
		{"enum": []any{0, "0"}},
		{"type": "string", "pattern": bytesize.Pattern},
	}}
}

// bandwidthForm is the form of a rate, alone or with whose answers share it.
type bandwidthForm struct{}

func (bandwidthForm) draw(d *drawing) object {
	return object{"anyOf": []object{rateForm{}.draw(d), bandwidthKeys.draw(d)}}
}

// rulesOrBandwidth says that an entry has a purpose.
func rulesOrBandwidth(*drawing) object {
	return object{"anyOf": []object{given("rules", anything), given("bandwidth", anything)}}
}

// overrideTogether says that an override is another limit or an exemption, and not both.
func overrideTogether(*drawing) object {
	var limits []object
	for _, key := range []string{"rpu", "burst", "queue"} {
		limits = append(limits, given(key, anything))
	}
	exempt := given("exempt", object{"const": true})
	return object{"oneOf": []object{{"anyOf": limits, "not": given("exempt", anything)}, {"allOf": []object{exempt, {"not": object{"anyOf": limits}}}}}}
}

// meaningless says which keys of a rule, and of its overrides, mean nothing to its algorithm.
func meaningless(d *drawing) object {
	var all []object
	for i, a := range d.words.Algorithms {
		unused := object{}
		for _, key := range algorithmKeys {
			if !a.Uses(key) {
				unused[key] = false
			}
		}
		others := maps.Clone(unused)
		if a.MaxN == 0 {
			unused["rpu"] = object{"type": "integer", "maximum": bounds.MaxN}
			unused["cost"] = object{"not": object{"type": "integer", "minimum": bounds.MaxCost + 1}}
			others["rpu"] = unused["rpu"]
		}
		variant := object{"type": "object", "additionalProperties": object{"type": "object", "properties": others}}
		unused["overrides"], unused["classes"] = variant, variant
		if calendars := d.words.calendars(); !a.Uses("zone") && a.Uses("unit") && len(calendars) > 0 {
			unused["unit"] = object{"not": object{"enum": calendars}}
		}
		chosen := given("algo", object{"type": "string", "pattern": anyCase(a.Names...)})
		if i == 0 {
			chosen = object{"anyOf": []object{chosen, {"not": given("algo", anything)}}}
		}
		all = append(all, object{"if": chosen, "then": object{"properties": unused}})
	}
	elsewhere := object{"properties": object{"scope": object{"enum": d.words.otherScopes()}}}
	if !slices.Contains(d.words.Scopes, string(rule.Local)) { // then a rule without a scope is counted here
		elsewhere["required"] = []string{"scope"}
	}
	all = append(all, object{"if": given("on_error", anything), "then": elsewhere})
	for _, a := range d.words.Algorithms {
		if a.Uses("measure") {
			adapts := given("algo", object{"type": "string", "pattern": anyCase(a.Names...)})
			all = append(all, object{"if": adapts, "then": object{"properties": object{"scope": object{"const": string(rule.Local)}}}})
		}
	}
	return object{"allOf": append(all, calendarTogether(d)...)}
}

// calendarTogether says what means nothing beside a unit of the calendar or a zone.
func calendarTogether(d *drawing) []object {
	zone := given("zone", anything)
	aligned := []object{zone}
	if calendars := d.words.calendars(); len(calendars) > 0 {
		aligned = append(aligned, given("unit", object{"enum": calendars}))
	}
	return []object{
		{"if": zone, "then": given("unit", object{"not": object{"enum": []string{"second", "minute", "total"}}})},
		{"if": object{"anyOf": aligned}, "then": object{"properties": object{"align": object{"const": "clock"}}}},
	}
}

// answerForm is the form of the text of an answer, or of other values for the body of the request.
type answerForm struct{ textForm }

func (f answerForm) draw(d *drawing) object {
	values := bodyValues.draw(d)
	values["minProperties"] = 1
	return object{"anyOf": []object{f.textForm.draw(d), values}}
}

// bodyValueForm is the form of a value in the body of a request.
type bodyValueForm struct{ textForm }

func (f bodyValueForm) draw(d *drawing) object {
	return object{"anyOf": []object{f.textForm.draw(d), bodyNumber.draw(d), {"type": "boolean"}}}
}

// divertTogether says that there is one answer, and what means nothing to an upstream's.
func divertTogether(*drawing) object {
	var ways []object
	for _, way := range divertWays {
		ways = append(ways, given(way, anything))
	}
	return object{
		"oneOf":      ways,
		"properties": object{"status": object{"not": object{"enum": bodyless}}},
		"if":         object{"anyOf": []object{given("upstream", anything), given("body", object{"type": "object"})}},
		"then":       object{"properties": object{"status": false, "type": false}},
	}
}

// redisTogether says that there is one address, and nothing beside a URL that it says.
func redisTogether(*drawing) object {
	var ways []object
	for _, way := range redisWays {
		ways = append(ways, given(way, anything))
	}
	return object{"oneOf": ways, "allOf": besides("redis")}
}

func remoteTogether(d *drawing) object {
	var plain []string
	for _, k := range d.words.Sources {
		for _, scheme := range k.Schemes {
			if isPlain(k, scheme) {
				plain = append(plain, scheme)
			}
		}
	}
	return object{"allOf": besides(plain...)}
}

// besides says what mapping.besides checks. plain are the schemes that are without TLS.
func besides(plain ...string) []object {
	where := func(pattern string, then object) object {
		url := given("url", object{"type": "string", "pattern": pattern})
		return object{"if": url, "then": object{"properties": then}}
	}
	return []object{
		where("^[^/?#]*//[^/?#]*@", object{"username": false, "password": false}),
		where(strings.TrimSuffix(anyCase(plain...), "$")+"://", object{"tls": false}),
	}
}

// remoteForm is the form of remote, for programs that have sources.
type remoteForm struct{ keys }

func (f remoteForm) draw(d *drawing) object {
	if len(d.words.Sources) == 0 {
		return object{"not": object{}}
	}
	return f.keys.draw(d)
}

// sourceForm is the form of the URL of a document in a configuration centre.
type sourceForm struct{ textForm }

func (f sourceForm) draw(d *drawing) object {
	var schemes []string
	for _, k := range d.words.Sources {
		schemes = append(schemes, k.Schemes...)
	}
	f.pattern = strings.TrimSuffix(anyCase(schemes...), "$") + "://"
	return f.textForm.draw(d)
}
