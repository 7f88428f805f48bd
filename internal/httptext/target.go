// SPDX-License-Identifier: MIT

package httptext

import "strings"

// Target divides the target of a request that another gateway names. Some servers end the path at a "#":
// short is the path up to there, and path is the whole. Without a "#" both are equal.
func Target(target string) (path, short, query string) {
	path, query, _ = strings.Cut(target, "?")
	short, _, _ = strings.Cut(path, "#")
	return path, short, query
}
