// SPDX-License-Identifier: MIT

package rule

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Divert is a cheaper response to a request that a rule refuses. Exactly one of Body, Values, File and
// Upstream is set.
type Divert struct {
	Status   int      // of the response, 200 to 599; 0 with Values and Upstream
	Type     string   // media type of the response; if empty, from the file's name or the content
	Body     string   // text of the response
	File     string   // file with the response
	Upstream *url.URL // server that gets the request instead

	// Values are other values for the JSON body of the request, by JSON pointer: a string, an int64 or a bool each. The
	// request is evaluated once more with them, and proceeds if the rules then allow it.
	Values map[string]any
}

// String returns a short description of the response.
func (d *Divert) String() string {
	switch {
	case d == nil:
		return ""
	case d.Upstream != nil:
		return "to " + d.Upstream.String()
	case d.Values != nil:
		return "evaluated once more with another " + strings.Join(slices.Sorted(maps.Keys(d.Values)), " and ") + " in its body"
	case d.File != "":
		return fmt.Sprintf("%d with %s", d.Status, d.File)
	}
	return fmt.Sprintf("%d with a text of %d bytes", d.Status, len(d.Body))
}
