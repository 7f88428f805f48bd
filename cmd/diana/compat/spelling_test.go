// SPDX-License-Identifier: MIT

package compat

import (
	"flag"
	"fmt"
	"iter"
	"strings"
)

var oneIn = flag.Int("one-in", 12, "send one of so many spellings, and a quarter of these to gateways that differ in one setting")

// spellings returns other ways to write the protected paths, each once: every trick at every
// place, every pair of tricks for /admin, then some at random.
//
// A path is taken apart into places: a front, and for each segment the separator before it
// and the segment itself, and an end. A trick is another text for one place.
func spellings() []string {
	var all []string
	known := map[string]bool{}
	add := func(target string) {
		// These bytes end a request target, so such a request asks for something else.
		if target != "" && !strings.ContainsAny(target, " \r\n") && !known[target] {
			known[target] = true
			all = append(all, target)
		}
	}
	for _, target := range []string{"/admin", "/admin/x", "/a/b/secret", "/api/7/secret"} {
		for s := range singles(target) {
			add(s)
		}
	}
	for s := range pairs("/admin") {
		add(s)
	}
	for s := range long() {
		add(s)
	}
	for s := range random(4000) {
		add(s)
	}
	return all
}

// every returns the first of n texts, the first of the next n, and so on.
func every(n int, all []string) []string {
	var some []string
	for i := 0; i < len(all); i += n {
		some = append(some, all[i])
	}
	return some
}

// places takes a path apart: front, separator, segment, separator, segment ..., end.
func places(path string) []string {
	all := []string{""}
	for segment := range strings.SplitSeq(path[1:], "/") {
		all = append(all, "/", segment)
	}
	return append(all, "")
}

// tricks returns the other texts for a place. The short list is for pairs.
func tricks(places []string, place int, short bool) []string {
	switch {
	case place == 0:
		return fronts
	case place == len(places)-1:
		if short {
			return ends
		}
		return append(everyByte(), ends...)
	case place%2 == 1:
		if short {
			return fewSeparators
		}
		return separators()
	}
	if short {
		return segments(places[place], true)
	}
	return segments(places[place], false)
}

// singles yields path with each trick at each place.
func singles(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		places := places(path)
		for i, plain := range places {
			for _, trick := range tricks(places, i, false) {
				places[i] = trick
				if !yield(strings.Join(places, "")) {
					return
				}
			}
			places[i] = plain
		}
	}
}

// pairs yields path with each pair of tricks at two places.
func pairs(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		plain := places(path)
		for i := range plain {
			for j := i + 1; j < len(plain); j++ {
				places := places(path)
				for _, first := range tricks(plain, i, true) {
					for _, second := range tricks(plain, j, true) {
						places[i], places[j] = first, second
						if !yield(strings.Join(places, "")) {
							return
						}
					}
				}
			}
		}
	}
}

var (
	// slashes are taken for a slash by some server, or look like one.
	slashes = []string{"/", "//", "%2f", "%2F", `\`, "%5c", "%5C", "%252f", "%255c", "%c0%af", "%ef%bc%8f", "/;/", "%2f/", "/%2f", `\/`, "/%5c"}

	// ups are taken for ".." by some server, or look like it.
	ups = []string{
		"..", "%2e%2e", "%2E.", ".%2e", "%252e%252e", ".%252e", "..;", "..;a=b", ";..", "..%3b", "..%20", "..%00", "..%09", "..%0a", "..%0d",
		"...", "....", "%c0%ae%c0%ae", "%ef%bc%8e%ef%bc%8e", "%u002e%u002e", "%%32%65%%32%65", ". .", ".%00.",
	}

	// heres are segments that some server drops.
	heres = []string{".", "%2e", "%2E", "%252e", ".;", ".;a", ";", ";a=b", "%3b", "%20", "%00", "%09", "%0a", ".%20", "%20.", "+", "%c0%ae", "%ef%bc%8e", "%e2%80%8b"}

	// fronts are put before the first slash.
	fronts = []string{
		"//h", "///h", "////h", "//h:80", "//u@h", "//..", "//.", "//h/..", "//h//..", "//h/../..", `/\h`, `\\h`, `\/h`, "/%2fh", "/%5ch", "%2f", "%2f%2fh", "/;//h",
		"http://h", "HTTP://h", "http://h:80", "http://h/", "http:///h", "http:/h", "http:", "https://h", "ws://h", "x:", `http:\\h`, "http://h?", "http://h;x", "http://u:p@h",
		"/..", "/../..", "/../../..", "/x/../..", "/%2e%2e", "/.%2e/..", "/..;", "/..;/..", "/..%2f", "/..%5c..", `/..\`, "/;/../..", "/;x/..;/..",
		"/../base", "/%2e%2e/base", "/..;/base", "/..%2fbase", "/;/../../base", "/x/../../base", "//../base", "//h/../../base", "/base/../..", "/..//base", "/./../base",
		"*", "?", "#", "/?", "/#", "/%3f", "/%23", "@h", "/@", ".", "..", "%2e", "%00", "~",
	}

	// ends are put after the last segment.
	ends = []string{
		"/", "//", "/.", "/./", "/x/..", "/x/../", "/..", "/../admin", "/%2e", "/%2e/", "/x/%2e%2e", "/%2e%2e/admin", "/..;/admin", "/..%2fadmin", "/.%2e",
		"%2f", "%2f.", "%2fx", "%2fx%2f..", "%5c", "%5cx", `\`, `\x`, `\..\admin`, "%252f", "%255c",
		";", ";a=b", ";a=b/", ";/", ";/x", ";/../admin", "%3b", "%3ba", "%253b", ";%2f", ";%2f..", ";a=b;c", ";jsessionid=1",
		".", "..", "...", "%2e", "%252e", "./", ".%20", "%20", "%20/", "%20.", "+", "%09", "%0a", "%0d", "%0d%0a", "%00", "%00.txt", "%00/", "%2500", "%250a", "%7f", "%a0", "%c2%a0", "%e3%80%80", "%e2%80%8b", "%c2%ad",
		"?", "?x", "?/../x", "?a=/%2e%2e", "%3f", "%3fx", "%253f", "#", "#x", "#/../x", "%23", "%23x", "%", "%2", "%zz", "%%", "%u0000", "\t", "\x00", "\x7f", "\xa0",
		"*", "~", ":", ",", "!", "'", `"`, "<", "|", "^", "`", "{", "}", "[", "]", "::$DATA", "&", "=", "$", ".html", "/index.html", "/index.html/", "%2findex.html",
	}

	// fewSeparators replace a slash within pairs of tricks.
	fewSeparators = []string{
		"//", "///", "/./", "/%2e/", "/;/", "/;a=b/", "/.;/", "/%20/", "/%00/", "/%09/", "/%252e/", "%2f", "%2F", "%252f", "%5c", `\`, "%255c", "%c0%af", "%ef%bc%8f",
		"/x/../", "/x//../", "/x//..//../", "/x/y/../../", "/x/%2e%2e/", "/x/.%2e/", "/x/..;/", "/x/..;a=b/", "/x;/../", "/x;a/..;b/", "/x/%252e%252e/", "/x/..%20/", "/x/..%00/",
		"/x%2f../", "/x/..%2f", "%2fx%2f..%2f", "/x%5c../", "/x/..%5c", `/x\..\`, `/x\../`, `/x\y/../`, `/x\y/../../`, "/x%5cy/../", "/x%5cy/../../", "/x%2fy/../", "/x%2fy/../../", "/x%252fy/../../", "/x%255cy/../../",
		"/x;/y/../../", "/x;y/../", "/x;%2fy/../", "/x;%2fy/../../", "/x%3b/../", "/x%5cy/..%2f", "/x%5cy%2f../", "/x./../", "/./x/../", "/.../../", "/x/../../", "",
	}
)

// separators returns texts that may replace a slash: another slash, a segment that servers drop, or
// segments that later ones cancel, divided in all ways.
func separators() []string {
	all := append([]string(nil), fewSeparators...)
	for _, a := range slashes {
		all = append(all, a)
		for _, here := range heres {
			all = append(all, "/"+here+a, a+here+"/")
		}
		for _, up := range ups {
			all = append(all, "/x"+a+up+"/", "/x/"+up+a, a+"x"+a+up+a, "/x/y"+a+up+"/"+up+"/")
		}
		for _, b := range slashes {
			all = append(all, "/x"+a+"y"+b+"../", "/x"+a+"y/.."+b, "/x"+a+"y"+b+"z/../../", "/x"+a+"y/../.."+b, "/x"+a+"y/../../", "/;x"+a+"y"+b+"../", "/x;"+a+"y"+b+"z/../")
		}
	}
	return all
}

// segments returns other ways to write a segment. The short list has each way at one place only.
func segments(plain string, short bool) []string {
	all := []string{strings.ToUpper(plain), escaped(plain, "%%%02x"), escaped(plain, "%%%02X"), escaped(plain, "%%25%02x"), escaped(plain, "%%2525%02x"), ";" + plain, ";a=b;" + plain, "%20" + plain, "." + plain, "%2e" + plain}
	for i := range len(plain) {
		if short && i > 0 {
			break
		}
		before, c, after := plain[:i], plain[i:i+1], plain[i+1:]
		for _, format := range []string{"%%%02x", "%%%02X", "%%25%02x", "%%25%02X", "%%2525%02x", "%%u00%02x", "%%%%3%x"} {
			all = append(all, before+escaped(c, format)+after)
		}
		overlong := fmt.Sprintf("%%%02x%%%02x", 0xc0|c[0]>>6, 0x80|c[0]&0x3f)
		wide := escaped(string(rune(c[0])+0xfee0), "%%%02x")
		all = append(all, before+strings.ToUpper(c)+after, before+overlong+after, before+wide+after, before+`%`+after)
		for _, inside := range []string{";", "%3b", "%00", "%0a", "%09", "%20", ".", "%2e", "/", "%2f", `\`, "%5c", "%", "+", "%c2%ad", "%e2%80%8b"} {
			all = append(all, before+inside+c+after)
		}
	}
	return all
}

// escaped returns text with every byte written by format.
func escaped(text, format string) string {
	var b strings.Builder
	for i := range len(text) {
		fmt.Fprintf(&b, format, text[i])
	}
	return b.String()
}

// everyByte returns all bytes percent-encoded, in both cases.
func everyByte() []string {
	var all []string
	for c := range 256 {
		all = append(all, fmt.Sprintf("%%%02x", c), fmt.Sprintf("%%%02X", c), fmt.Sprintf("/%%%02x/../", c))
	}
	return all
}

// long yields paths that are long or have many segments.
func long() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, piece := range []string{"/", "/.", "/x/..", "/%2e", "/;", "/x", "/x%2f..", "/x;a=b/..", "/%20", `\`, "/x%5cy/..", "/X/../"} {
			for _, n := range []int{3, 64, 127, 128, 250, 255, 256, 257, 300, 1000} {
				front := strings.Repeat(piece, n)
				if len(front) > 20000 {
					continue
				}
				for _, s := range []string{front + "/admin", "/x" + front + strings.Repeat("/..", n+1) + "/admin", "/admin" + front} {
					if !yield(s) {
						return
					}
				}
			}
		}
		for _, n := range []int{1000, 4000, 8000, 8179, 8192, 9000, 16000, 40000} {
			name := strings.Repeat("a", n)
			for _, s := range []string{"/" + name + "/../admin", "/admin/" + name, "/admin?" + name, "/admin;" + name, "/" + name + "%2f../admin", "/x;" + name + "/../admin"} {
				if !yield(s) {
					return
				}
			}
		}
	}
}
