// SPDX-License-Identifier: MIT

package httptext

import (
	"net/http"
	"strings"
)

// SplitLines returns a header in which each member of a list is a line of its own, see AppendLines.
func SplitLines(h http.Header) http.Header {
	split := make(http.Header, len(h))
	for name, lines := range h {
		for _, line := range lines {
			split[name] = AppendLines(split[name], name, line)
		}
	}
	return split
}

// AppendLines appends each member of a list as a line of its own. Envoy joins the lines of a field by commas before it
// asks, and servers read the first line or the last. Cookie stays as it is, because its values are not a list.
func AppendLines(lines []string, name, list string) []string {
	if name == "Cookie" || strings.IndexByte(list, ',') < 0 {
		return append(lines, list)
	}
	for member := range strings.SplitSeq(list, ",") {
		lines = append(lines, Trim(member))
	}
	return lines
}
