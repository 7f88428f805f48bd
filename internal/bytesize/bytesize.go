// SPDX-License-Identifier: MIT

// Package bytesize reads and writes sizes of memory, such as 16MiB.
package bytesize

import (
	"fmt"
	"regexp"
	"strconv"
)

// Max is the largest size.
const Max int64 = 1 << 30

// units are the units of sizes, the largest first.
var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// Pattern is the form of a size other than 0.
const Pattern = `^([1-9][0-9]{0,3}(KiB|MiB)|1GiB)$`

var pattern = regexp.MustCompile(`^([1-9][0-9]{0,3})(KiB|MiB|GiB)$`)

// Parse returns a number of bytes. ok is false if the text is not a size of at most [Max].
func Parse(text string) (bytes int64, ok bool) {
	if text == "0" {
		return 0, true
	}
	m := pattern.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	n, _ := strconv.ParseInt(m[1], 10, 64) // the pattern has digits only
	for _, u := range units {
		if u.name == m[2] {
			n *= u.bytes
		}
	}
	return n, n <= Max
}

// String returns a size in its largest whole unit; 0 or less is 0.
func String(bytes int64) string {
	for _, u := range units {
		if bytes >= u.bytes && bytes%u.bytes == 0 {
			return fmt.Sprint(bytes/u.bytes, u.name)
		}
	}
	return strconv.FormatInt(max(bytes, 0), 10)
}
