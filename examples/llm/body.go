// SPDX-License-Identifier: MIT

package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// body is the body of a response, compressed if the client accepts gzip.
type body struct {
	io.Writer
	zip *gzip.Writer // nil: not compressed
	out *http.ResponseController
}

func newBody(w http.ResponseWriter, r *http.Request, contentType string) *body {
	b := &body{Writer: w, out: http.NewResponseController(w)}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		b.zip = gzip.NewWriter(w)
		b.Writer = b.zip
	}
	return b
}

// event sends a server-sent event at once. The name may be empty. A client that has disconnected gets nothing.
func (b *body) event(name string, data any) {
	if name != "" {
		_, _ = fmt.Fprintf(b, "event: %s\n", name)
	}
	text, isText := data.(string)
	if !isText {
		text = string(encode(data))
	}
	_, _ = fmt.Fprintf(b, "data: %s\n\n", text)
	if b.zip != nil {
		_ = b.zip.Flush()
	}
	_ = b.out.Flush()
}

// close ends the body.
func (b *body) close() {
	if b.zip != nil {
		_ = b.zip.Close()
	}
}

// reply sends a response that is not streamed.
func reply(w http.ResponseWriter, r *http.Request, value object) {
	b := newBody(w, r, "application/json")
	defer b.close()
	_, _ = b.Write(encode(value))
}

func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // the values of this program are valid
	}
	return text
}
