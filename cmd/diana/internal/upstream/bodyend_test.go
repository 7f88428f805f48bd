// SPDX-License-Identifier: MIT

package upstream

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A body that has ended stays so, also after net/http has closed it because the answer has begun.
func TestBodyIsReadPastItsEnd(t *testing.T) {
	t.Parallel()
	request, err := http.ReadRequest(bufio.NewReader(strings.NewReader("POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\n\r\nx")))
	if err != nil {
		t.Fatal(err)
	}
	body := withBody(request).Body
	if n, err := body.Read(make([]byte, 9)); n != 1 || err != io.EOF {
		t.Fatal(n, err)
	}
	_ = request.Body.Close()
	if n, err := body.Read(make([]byte, 9)); n != 0 || err != io.EOF {
		t.Error(n, err)
	}
}
