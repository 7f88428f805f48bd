// SPDX-License-Identifier: MIT

package compat

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// scripted is an upstream that answers each request with a text of the test, byte by byte.
// A path without a text gets an answer whose body is the request, as it arrived.
type scripted struct {
	net.Listener
	answers map[string]string // by path
	broken  map[string]bool   // the paths whose answers end by the end of the connection
}

func startScripted(t *testing.T) *scripted {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &scripted{l, map[string]string{}, map[string]bool{}}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

func (s *scripted) serve(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	for in, ended := bufio.NewReader(conn), false; !ended; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		text, ok := s.answers[r.URL.Path]
		if !ok {
			text = echoOf(r, body, err)
		}
		ended = strings.HasPrefix(text, "HTTP/1.0") || strings.Contains(text, "Connection: close") || s.broken[r.URL.Path] || r.Close
		if r.Method == http.MethodHead { // has no body
			text = headOf(text)
		}
		_, _ = io.WriteString(conn, text)
	}
	if c, ok := conn.(*net.TCPConn); ok { // a close with unread bytes would reset the connection
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	}
}

// headOf returns an answer without its body, with its informational answers.
func headOf(text string) string {
	head, rest, ok := strings.Cut(text, "\r\n\r\n")
	if !ok {
		head, _, _ = strings.Cut(text, "\n\n")
		return head + "\n\n"
	}
	if strings.HasPrefix(head, "HTTP/1.1 1") {
		rest = headOf(rest)
	} else {
		rest = ""
	}
	return head + "\r\n\r\n" + rest
}

// added are the fields that the gateway adds to a request, or that belong to one connection.
var added = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Request-Id", "Connection", "Transfer-Encoding", "Keep-Alive", "Te", "Upgrade"}

// echoOf returns an answer that has a request as its body, without what the gateway may change.
func echoOf(r *http.Request, body []byte, err error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", r.Method, r.RequestURI)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if !slices.Contains(added, name) {
			fmt.Fprintf(&b, "%s: %q\n", name, r.Header[name])
		}
	}
	fmt.Fprintf(&b, "%q %v %v", body, err, r.Trailer)
	return "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n" + b.String()
}

// seen is what a client sees of an answer.
type seen struct {
	hints   []string // informational answers
	status  int
	header  http.Header
	trailer http.Header
	body    string
	broken  bool // it ends before its end
}

// look sends a request, and returns what it sees.
func look(host, method, request string) (s seen, err error) {
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return s, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, request); err != nil {
		return s, err
	}
	r := bufio.NewReader(conn)
	for {
		answer, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return s, fmt.Errorf("no answer: %w", err)
		}
		if answer.StatusCode < 200 && answer.StatusCode != http.StatusSwitchingProtocols {
			s.hints = append(s.hints, fmt.Sprint(answer.StatusCode, answer.Header))
			continue
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		s.status, s.header, s.body, s.broken = answer.StatusCode, answer.Header, string(body), err != nil
		if method != http.MethodHead { // then net/http lists the trailers that would follow
			s.trailer = answer.Trailer
		}
		return s, nil
	}
}

// differences compares what a client sees of the upstream and through the gateway. It leaves out what
// docs/upstreams.md lists under "What the gateway changes".
func differences(direct, through seen) (all []string) {
	differ := func(what string, a, b any) {
		if fmt.Sprint(a) != fmt.Sprint(b) {
			all = append(all, fmt.Sprintf("%s: %q, through the gateway %q", what, fmt.Sprint(a), fmt.Sprint(b)))
		}
	}
	differ("status", direct.status, through.status)
	differ("body", direct.body, through.body)
	differ("broken", direct.broken, through.broken)
	differ("trailer", direct.trailer, through.trailer)
	differ("hints", direct.hints, through.hints)
	ofConnection := []string{"Connection", "Keep-Alive", "Proxy-Connection", "Trailer"}
	for _, list := range direct.header["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			ofConnection = append(ofConnection, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	names := slices.Collect(maps.Keys(direct.header))
	names = append(names, slices.Collect(maps.Keys(through.header))...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		own := name == "Ratelimit" || name == "Ratelimit-Policy" || (name == "Date" || name == "X-Request-Id") && direct.header[name] == nil
		framing := name == "Content-Length" && (direct.header[name] == nil || through.header[name] == nil)
		if !own && !framing && !slices.Contains(ofConnection, name) {
			differ(name, direct.header[name], through.header[name])
		}
	}
	return all
}

// oddAnswers returns answers of an upstream, by name.
func oddAnswers() map[string]string {
	answers := map[string]string{}
	add := func(name, text string) { answers[name] = text }
	sized := func(head, body string) string {
		return head + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	}
	for _, status := range []int{200, 201, 202, 203, 205, 206, 207, 208, 226, 299, 300, 301, 302, 303, 305, 306, 307, 308, 399, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422, 423, 424, 425, 426, 428, 429, 431, 444, 451, 498, 500, 501, 502, 503, 504, 505, 506, 507, 508, 510, 511, 599, 600, 777, 999} {
		head := fmt.Sprintf("HTTP/1.1 %d Odd Reason\r\n", status)
		add(fmt.Sprint("status ", status, ", length"), sized(head+"Content-Type: text/plain\r\n", "the body"))
		add(fmt.Sprint("status ", status, ", chunked"), head+"Transfer-Encoding: chunked\r\n\r\n3\r\nthe\r\n5;x=y\r\n body\r\n0\r\n\r\n")
		add(fmt.Sprint("status ", status, ", close"), head+"Connection: close\r\n\r\nthe body")
	}
	for _, status := range []int{204, 304} {
		add(fmt.Sprint("status ", status), fmt.Sprintf("HTTP/1.1 %d Nothing\r\nETag: \"x\"\r\n\r\n", status))
		add(fmt.Sprint("status ", status, " with fields of a body"), fmt.Sprintf("HTTP/1.1 %d Nothing\r\nContent-Type: text/x\r\nLast-Modified: Mon, 02 Jan 2006 15:04:05 GMT\r\n\r\n", status))
	}
	for name, fields := range map[string]string{
		"cookies":             "Set-Cookie: a=1; Path=/\r\nSet-Cookie: b=2\r\nset-cookie: a=3\r\n",
		"a field twice":       "X-Two: 1\r\nX-Two: 2, 3\r\n",
		"an empty field":      "X-Empty:\r\nX-Space:    \r\n",
		"letters":             "x-lOWER: a\r\nETAG: W/\"x\"\r\n",
		"underscores":         "X_Under: 1\r\nX-Under: 2\r\n",
		"marks":               "X!#$%&'*+.^`|~9: 1\r\n",
		"a long field":        "X-Long: " + strings.Repeat("v", 30_000) + "\r\n",
		"many fields":         strings.Repeat("X-Many: 1\r\n", 300),
		"other characters":    "X-Latin: caf\xe9\r\nX-UTF: 每\r\n",
		"spaces in a field":   "X-Space: a  b\tc\r\n",
		"a quoted field":      "X-Quoted: \"a, b\", \"c\"\r\n",
		"no sniffing":         "X-Content-Type-Options: nosniff\r\n",
		"a type":              "Content-Type: Text/HTML; Charset=\"UTF-8\"\r\n",
		"two types":           "Content-Type: text/a\r\nContent-Type: text/b\r\n",
		"an odd type":         "Content-Type: ;;\r\n",
		"a coding":            "Content-Encoding: gzip\r\nVary: Accept-Encoding\r\nVary: Origin\r\n",
		"an unknown coding":   "Content-Encoding: x-odd\r\n",
		"a server":            "Server: odd/1.0\r\nVia: 1.1 odd\r\nX-Powered-By: odd\r\n",
		"a date":              "Date: Mon, 02 Jan 2006 15:04:05 GMT\r\n",
		"an odd date":         "Date: yesterday\r\n",
		"its own limits":      "RateLimit-Remaining: 3\r\nX-RateLimit-Limit: 5\r\nRetry-After: 7\r\n",
		"its own ID":          "X-Request-Id: own\r\n",
		"a challenge":         "WWW-Authenticate: Basic realm=\"a\"\r\nWWW-Authenticate: Bearer\r\n",
		"a place":             "Location: //other/../x y\r\n",
		"ranges":              "Accept-Ranges: bytes\r\nContent-Range: bytes 0-3/10\r\n",
		"caching":             "Cache-Control: private, max-age=1\r\nAge: 3\r\nExpires: 0\r\nPragma: no-cache\r\n",
		"forwarded":           "X-Forwarded-For: 1.2.3.4\r\nForwarded: for=x\r\n",
		"hop by hop":          "Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n",
		"an upgrade":          "Alt-Svc: h3=\":443\"\r\n",
		"a body without type": "",
		"links":               "Link: </a>; rel=preload\r\nLink: </b>; rel=next\r\n",
		"policies":            "Content-Security-Policy: default-src 'self'\r\nStrict-Transport-Security: max-age=1\r\n",
		"the same length":     "Content-Length: 5\r\n",
	} {
		add(name+", length", sized("HTTP/1.1 200 OK\r\n"+fields, "<html"))
		if name != "the same length" {
			add(name+", chunked", "HTTP/1.1 200 OK\r\n"+fields+"Transfer-Encoding: chunked\r\n\r\n5\r\n<html\r\n0\r\n\r\n")
			add(name+", close", "HTTP/1.0 200 OK\r\n"+fields+"\r\n<html")
		}
	}
	add("hints", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"+sized("HTTP/1.1 200 OK\r\nX-A: b\r\n", "text"))
	add("trailers", "HTTP/1.1 200 OK\r\nTrailer: X-Sum, X-Other\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntext\r\n0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n")
	add("empty, length", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	add("empty, chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	add("a large body", sized("HTTP/1.1 200 OK\r\n", strings.Repeat("0123456789abcdef", 1<<16)))
	add("bytes of all kinds", sized("HTTP/1.1 200 OK\r\n", string(bytes.Repeat([]byte{0, 255, '\r', '\n'}, 999))))
	add("broken after a part", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nX-A: b\r\n\r\n0123456789")
	add("broken after the fields", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nX-A: b\r\n\r\n")
	add("broken in a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n0123")
	add("broken between chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n0123\r\n")
	add("no reason", "HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\nx")
	add("lines without CR", "HTTP/1.1 200 OK\nContent-Length: 1\nX-A: b\n\nx")
	return answers
}

// oddRequests returns requests, by name. Their first word is the method, and they close the connection.
func oddRequests() map[string]string {
	requests := map[string]string{}
	add := func(name, first, rest string) {
		requests[name] = first + " HTTP/1.1\r\nHost: upstream\r\nConnection: close\r\n" + rest
	}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT", "ODD-METHOD", "get"} {
		add("method "+method, method+" /m", "\r\n")
		add("method "+method+" with a body", method+" /m", "Content-Length: 4\r\n\r\nbody")
		add("method "+method+" with chunks", method+" /m", "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n")
	}
	for _, target := range []string{"/", "/a/", "//a", "/a%20b", "/%41", "/a+b", "/a:b@c", "/~x;p=1", "/?", "/?a", "/?a=b&a=c", "/?q=%zz", "/?a=b;c", "/?[]={}", "/?a=%00", "/é", "/a?b?c", "/?" + strings.Repeat("x", 5000)} {
		add("target "+target, "GET "+target, "\r\n")
	}
	for name, fields := range map[string]string{
		"cookies":          "Cookie: a=1; b=2\r\nCookie: c=3\r\n",
		"a field twice":    "X-Two: 1\r\nX-Two: 2, 3\r\n",
		"an empty field":   "X-Empty:\r\n",
		"letters":          "x-lOWER: a\r\n",
		"other characters": "X-Latin: caf\xe9\r\n",
		"a coding":         "Accept-Encoding: br;q=1, gzip;q=0.5, *;q=0\r\n",
		"no agent":         "User-Agent:\r\n",
		"an agent":         "User-Agent: odd/1\r\n",
		"authorization":    "Authorization: Basic eDp5\r\nProxy-Foo: x\r\n",
		"conditions":       "If-None-Match: \"a\"\r\nIf-Modified-Since: x\r\nRange: bytes=0-1,5-\r\n",
		"caching":          "Cache-Control: no-cache\r\nPragma: no-cache\r\n",
		"hop by hop":       "Keep-Alive: 5\r\nTE: gzip\r\n",
		"origin":           "Origin: null\r\nReferer: x\r\nSec-Fetch-Mode: cors\r\n",
		"a long field":     "X-Long: " + strings.Repeat("v", 20_000) + "\r\n",
		"an upgrade":       "Upgrade: h2c\r\nHTTP2-Settings: x\r\n",
		"its own ID":       "X-Request-Id: mine\r\n",
	} {
		add("fields: "+name, "GET /f", fields+"\r\n")
		add("fields and a body: "+name, "POST /f", fields+"Content-Type: x/y\r\nContent-Length: 3\r\n\r\na\x00b")
	}
	add("trailers", "POST /t", "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: 1\r\n\r\n")
	add("an empty body", "POST /t", "Content-Length: 0\r\n\r\n")
	add("an empty body of DELETE", "DELETE /t", "Content-Length: 0\r\n\r\n")
	add("a large body", "PUT /t", "Content-Length: 100000\r\n\r\n"+strings.Repeat("x", 100_000))
	return requests
}

// The gateway passes on odd answers and requests as they are, but for what docs/upstreams.md lists.
func TestGatewayChangesNothing(t *testing.T) {
	s := startScripted(t)
	known := []string{ // each is on the list of docs/upstreams.md
		"answer to GET: status 304 with fields of a body: Content-Type", "answer to HEAD: status 304 with fields of a body: Content-Type",
		"request: an empty body of DELETE: body",
		"request: fields: no agent: body", "request: fields and a body: no agent: body",
		"request: method PATCH: body", "request: method POST: body", "request: method PUT: body",
		"request: target /é: body",
	}
	found := map[string]bool{}
	answers, requests := oddAnswers(), oddRequests()
	paths := map[string]string{}
	for i, name := range slices.Sorted(maps.Keys(answers)) {
		paths[name] = fmt.Sprint("/answer/", i)
		s.answers[paths[name]], s.broken[paths[name]] = answers[name], strings.HasPrefix(name, "broken")
	}
	host := gateway(t, "http://"+s.Addr().String(), "limits: [{url: /, rules: [{rpu: 1000000}]}]")
	compared := 0
	compare := func(name, method, request string) {
		direct, err := look(s.Addr().String(), method, request)
		if err != nil {
			t.Errorf("%s: the upstream: %v", name, err)
			return
		}
		through, err := look(host, method, request)
		if err != nil {
			t.Errorf("%s: the gateway: %v", name, err)
			return
		}
		compared++
		for _, d := range differences(direct, through) {
			what, _, _ := strings.Cut(d, ":")
			if found[name+": "+what] = true; !slices.Contains(known, name+": "+what) {
				t.Errorf("%s: %.300s", name, d)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		for _, method := range []string{"GET", "HEAD"} {
			compare("answer to "+method+": "+name, method, method+" "+paths[name]+" HTTP/1.1\r\nHost: upstream\r\nConnection: close\r\n\r\n")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		method, _, _ := strings.Cut(requests[name], " ")
		compare("request: "+name, method, requests[name])
	}
	for _, k := range known {
		if !found[k] {
			t.Errorf("%s: no difference any more", k)
		}
	}
	t.Logf("%d exchanges compared", compared)
}
