// SPDX-License-Identifier: MIT

package httptext

import (
	"net/http"
	"strings"
)

// SplitLines returns a header in which each member of a list is a line of its own. Envoy joins the lines of
// a field by commas before it asks, and servers read the first line or the last. Cookie stays as it is,
// because its values are not a list.
func SplitLines(h http.Header) http.Header {
	split := make(http.Header, len(h))
	for name, lines := range h {
		if name == "Cookie" {
			split[name] = lines
			continue
		}
		for _, line := range lines {
			if strings.IndexByte(line, ',') < 0 {
				split[name] = append(split[name], line)
				continue
			}
			for member := range strings.SplitSeq(line, ",") {
				split[name] = append(split[name], Trim(member))
			}
		}
	}
	return split
}
