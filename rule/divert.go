// SPDX-License-Identifier: MIT

package rule

import (
	"fmt"
	"net/url"
)

// Divert is a cheaper response to a request that a rule refuses. Exactly one of Body, File and
// Upstream is set.
type Divert struct {
	Status   int      // of the response, 200 to 599; 0 with Upstream
	Type     string   // media type of the response; if empty, from the file's name or the content
	Body     string   // text of the response
	File     string   // file with the response
	Upstream *url.URL // server that gets the request instead
}

// String returns a short description of the response.
func (d *Divert) String() string {
	switch {
	case d == nil:
		return ""
	case d.Upstream != nil:
		return "to " + d.Upstream.String()
	case d.File != "":
		return fmt.Sprintf("%d with %s", d.Status, d.File)
	}
	return fmt.Sprintf("%d with a text of %d bytes", d.Status, len(d.Body))
}
