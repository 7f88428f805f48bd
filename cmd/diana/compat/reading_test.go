// SPDX-License-Identifier: MIT

package compat

import (
	"iter"
	"slices"
	"strings"
)

// reading is one way in which a server may read a path. Every field names a step that some
// server takes.
type reading struct {
	host          bool // drops a host behind two slashes at the front
	twice         bool // decodes twice
	slashes       bool // divides at encoded slashes
	backslashes   bool // divides at backslashes
	early, params bool // drops what follows a ";", before and after decoding
	merge         bool // merges slashes
	trim          bool // drops trailing dots and spaces of a segment
}

// readings yields all combinations of the steps that can change how target is read.
func readings(target string) iter.Seq[reading] {
	has := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(target), text) })
	}
	steps := []bool{
		has("//", `\`), has("%25", "%%"), has("2f"), has(`\`, "5c"), has(";"), has(";", "3b"), true, has(".", "2e", "%20"),
	}
	return func(yield func(reading) bool) {
	combinations:
		for i := range 1 << len(steps) {
			var step [8]bool
			for bit, matters := range steps {
				step[bit] = i>>bit&1 == 1
				if step[bit] && !matters {
					continue combinations
				}
			}
			if !yield(reading{step[0], step[1], step[2], step[3], step[4], step[5], step[6], step[7]}) {
				return
			}
		}
	}
}

// of returns the path that a server serves which reads target so. Letter case is folded, and a
// slash within a segment is written %2F.
func (r reading) of(target string) string {
	var kept []string
	for _, segment := range r.behindHost(target) {
		switch {
		case segment == ".", segment == "" && r.merge:
		case segment == "..":
			kept = kept[:max(len(kept)-1, 0)]
		default:
			kept = append(kept, strings.ReplaceAll(strings.ToLower(segment), "/", "%2F"))
		}
	}
	return "/" + strings.Join(kept, "/")
}

// behindHost returns the segments of target, without those of a host.
func (r reading) behindHost(target string) []string {
	target, _, _ = strings.Cut(target, "?")
	target = strings.TrimPrefix(target, "/")
	var all []string
	for raw := range strings.SplitSeq(target, "/") {
		all = append(all, r.segments(raw)...)
	}
	if r.host && target != "" && strings.IndexByte(`/\`, target[0]) >= 0 {
		host := slices.IndexFunc(all, func(segment string) bool { return segment != "" })
		all = all[host+1:]
	}
	return all
}

// segments returns the segments in the text between two slashes.
func (r reading) segments(raw string) []string {
	if r.early {
		raw, _, _ = strings.Cut(raw, ";")
	}
	decoded := decode(raw)
	if r.twice {
		decoded = decode(decoded)
	}
	all := []string{decoded}
	switch {
	case r.slashes && r.backslashes:
		all = strings.Split(strings.ReplaceAll(decoded, `\`, "/"), "/")
	case r.slashes:
		all = strings.Split(decoded, "/")
	case r.backslashes:
		all = strings.Split(decoded, `\`)
	}
	for i, segment := range all {
		if r.params {
			segment, _, _ = strings.Cut(segment, ";")
		}
		if r.trim && segment != "." && segment != ".." {
			segment = strings.TrimRight(segment, ". ")
		}
		all[i] = segment
	}
	return all
}

// decode decodes percent-encoding, and does not change malformed text.
func decode(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, lo := strings.IndexByte(hex, s[i+1]|0x20), strings.IndexByte(hex, s[i+2]|0x20)
			if hi >= 0 && lo >= 0 {
				b.WriteByte(byte(hi<<4 | lo))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

const hex = "0123456789abcdef"
