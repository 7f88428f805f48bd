// SPDX-License-Identifier: MIT

package weblog

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var testNames = NewNames([]string{"X-Device-Id", "user-agent", "Referer", "X-Forwarded-For"})

// read returns the entry of a line as text, or why it has none.
func read(line string) string {
	p := parser{names: testNames}
	e := &Entry{Headers: make([]string, len(testNames.Headers))}
	switch k, why := p.parse(line, e); k {
	case other:
		return "other"
	case broken:
		return "broken: " + why
	}
	text := fmt.Sprintf("%s %s %s", time.UnixMicro(e.Start).UTC().Format(time.RFC3339Nano), e.Method, e.Target)
	for _, more := range []struct {
		key   string
		value any
		there bool
	}{
		{"?", e.Query, e.Query != ""}, {"host", e.Host, e.Host != ""}, {"from", e.Remote, e.Remote != ""},
		{"status", e.Status, e.Status != 0}, {"took", time.Duration(e.Duration) * time.Microsecond, e.Duration != Unknown},
		{"whole", "", e.Whole},
	} {
		if more.there {
			text += fmt.Sprintf(" %s %v", more.key, more.value)
		}
	}
	for i, value := range e.Headers {
		if value != "" {
			text += fmt.Sprintf(" %s=%q", testNames.Headers[i], value)
		}
	}
	return strings.ReplaceAll(text, "whole ", "whole")
}

// A line can have the size of the answer, and what it has cost.
func TestCosts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		line        string
		bytes, cost int64
	}{
		{`1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 2326 "-" "curl/8"`, 2326, Unknown},
		{`1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 2326`, 2326, Unknown},
		{`1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 -`, Unknown, Unknown},
		{`1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200`, Unknown, Unknown},
		{`{"ts":1646861401,"method":"GET","path":"/a","body_bytes_sent":7,"total_tokens":"27"}`, 7, 27},
		{`{"ts":1646861401,"method":"GET","path":"/a","bytes":"7","tokens":-3}`, 7, Unknown},
		{`{"ts":1646861401,"method":"GET","path":"/a","size":1.5,"cost":0}`, Unknown, 0},
		{`time=2026-01-02T03:04:05Z level=INFO msg=request method=GET path=/a status=200 bytes=12 cost=900`, 12, 900},
		{`{"ts":1646861401,"method":"GET","path":"/a","cost":99999999999999999999}`, Unknown, math.MaxInt64},
	} {
		e := Entry{Headers: make([]string, len(testNames.Headers))}
		p := parser{names: testNames}
		if k, why := p.parse(tc.line, &e); k != request || e.Bytes != tc.bytes || e.Cost != tc.cost {
			t.Errorf("%s: %v %s, bytes %d, cost %d, want %d and %d", tc.line, k, why, e.Bytes, e.Cost, tc.bytes, tc.cost)
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	const (
		at   = "203.0.113.7 - - [10/Oct/2000:13:55:36 -0700] "
		get  = "2000-10-10T20:55:36Z GET /a from 203.0.113.7 status 200 whole"
		none = "broken: not a line of an access log: expected the combined form, JSON or key=value"
	)
	for _, tc := range []struct{ line, want string }{
		// combined and common
		{at + `"GET /a HTTP/1.1" 200 2326 "http://x/" "curl/8"`, get + ` User-Agent="curl/8" Referer="http://x/"`},
		{at + `"GET /a HTTP/1.1" 200 2326`, get},
		{at + `"GET /a HTTP/1.1" 200 -`, get},
		{at + `"GET /a HTTP/2.0" 200`, get},
		{at + `"GET /a HTTP/1.1" 200 2326 "-" "-"`, get},
		{at + `"GET /a HTTP/1.1" 200 2326 "-" "a \x22b\x22 \\ c" "198.51.100.1, 10.0.0.1"`, get + ` User-Agent="a \"b\" \\ c" X-Forwarded-For="198.51.100.1, 10.0.0.1"`},
		{at + `"GET /a HTTP/1.1" 200 2326 "-" "curl/8" "0.003"`, get + ` User-Agent="curl/8"`},
		{at + `"GET /a HTTP/1.1" 200 2326 "-" "cut sho`, get},
		{`::1 - frank lee [01/Jan/2026:00:00:00 +0000] "POST /b?c=d HTTP/1.0" 503 0`, "2026-01-01T00:00:00Z POST /b?c=d from ::1 status 503 whole"},
		{at + `"GET /\xC3\xA4\x5C HTTP/1.1" 200 0`, strings.ReplaceAll(get, "/a", "/ä\\")},
		{at + `"-" 400 0 "-" "-"`, "other"},
		{at + `"" 400 0`, "other"},
		{at + `"\x16\x03\x01\x02" 400 0`, "other"},
		{at + `"GET /a" 400 0`, "other"},
		{at + `"GET /a b HTTP/1.1" 400 0`, "other"},
		{"", "other"},
		{" \t", "other"},
		{at + `"GET /a HTTP/1.1`, `broken: expected a request such as "GET / HTTP/1.1" after the time`},
		{at + `"GET /a HTTP/1.1"`, "broken: expected a status after the request"},
		{at + `"GET /a HTTP/1.1" 2000 0`, "broken: expected a status after the request"},
		{at + `"GET /a HTTP/1.1" ok`, "broken: expected a status after the request"},
		{"203.0.113.7 - - [10/Oct/2000:13:55:36 -0700", "broken: the time has no end, expected ]"},
		{"203.0.113.7 - - [31/Feb/2000:13:55:36 -0700]", "broken: not a time, expected one such as 10/Oct/2000:13:55:36 -0700"},
		{"nonsense", none},
		{"[10/Oct/2000:13:55:36 -0700] x", none},
		{"\x00\x01\x02", none},

		// JSON
		{`{"time":"2026-01-02T03:04:05.678901+01:00","method":"GET","path":"/a","remote_addr":"::1","status":404,"request_time":"0.250"}`,
			"2026-01-02T02:04:05.428901Z GET /a from ::1 status 404 took 250ms"},
		{`{"@timestamp": "2026-01-02T03:04:05Z", "verb": "GET", "request_uri": "/a?b", "uri": "/internal", "clientip": "1.2.3.4"}`,
			"2026-01-02T03:04:05Z GET /a?b whole"},
		{`{"msec":"1700000000.123","request":"GET /a HTTP/1.1","remote_addr":"1.2.3.4","http_user_agent":"x","http_x_device_id":"-"}`,
			`2023-11-14T22:13:20.123Z GET /a from 1.2.3.4 User-Agent="x"`},
		{`{"level":"info","ts":1646861401.5241024,"msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","method":"GET","host":"localhost","uri":"/a","headers":{"User-Agent":["curl/7.82.0"],"X-Device-Id":["a\"b"],"Host":["no"]},"tls":{"resumed":false,"version":772}},"duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Referer":["no"]}}`,
			`2022-03-09T21:30:01.523172Z GET /a host localhost from 127.0.0.1 status 200 took 930µs X-Device-Id="a\"b" User-Agent="curl/7.82.0"`},
		{`{"ts":1646861401,"method":"GET","path":"/a","args":"b=c","X-Device-ID":"d"}`, `2022-03-09T21:30:01Z GET /a ? b=c whole X-Device-Id="d"`},
		{`{"ts":1646861401123,"method":"GET","path":"/a"}`, "2022-03-09T21:30:01.123Z GET /a"},
		{`{"ts":1646861401123456,"method":"GET","path":"/a"}`, "2022-03-09T21:30:01.123456Z GET /a"},
		{`{"ts":1646861401123456789,"method":"GET","path":"/a"}`, "2022-03-09T21:30:01.123456Z GET /a"},
		{`{"ts":1.646861401e9,"method":"GET","path":"/a"}`, "2022-03-09T21:30:01Z GET /a whole"},
		{`{"start_time":"2026-01-02 03:04:05,5","time":"2027-01-01T00:00:00Z","method":"GET","path":"/a","latency":"1.5s"}`,
			"2026-01-02T03:04:05.5Z GET /a took 1.5s"},
		{`{"time":"2026-01-02T03:04:05Z","method":"GET","path":"/a","duration_ms":3}`, "2026-01-02T03:04:04.997Z GET /a took 3ms"},
		{`{"time":"10/Oct/2000:13:55:36 -0700","method":"GET","path":"/a","duration":"?"}`, "2000-10-10T20:55:36Z GET /a whole"},
		{`{"time":"2026-01-02T03:04:05Z","request":"","status":"400"}`, "other"},
		{`{"time":"2026-01-02T03:04:05Z","request":"-"}`, "other"},
		{`{"time":"2026-01-02T03:04:05Z","path":"/a"}`, "broken: no method of a request, expected a key such as method or request"},
		{`{"time":"2026-01-02T03:04:05Z","method":"GET"}`, "broken: no path of a request, expected a key such as path, uri or request"},
		{`{"method":"GET","path":"/a"}`, "broken: no time, expected a key such as time, ts or timestamp"},
		{`{"time":"soon","method":"GET","path":"/a"}`, "broken: not a time, expected one such as 2006-01-02T15:04:05Z, or seconds since 1970"},
		{`{"time":-5,"method":"GET","path":"/a"}`, "broken: not a time, expected one such as 2006-01-02T15:04:05Z, or seconds since 1970"},
		{`{}`, "broken: no path of a request, expected a key such as path, uri or request"},
		{`{"time":`, "broken: not JSON"},
		{`{"time":"x"`, "broken: not JSON"},
		{`{"a":[1,{"b":"]"}],"c":nul}`, "broken: not JSON"},
		{`{"a":1} {"b":2}`, "broken: not JSON: there is text after the object"},
		{`{"a":[1,{"b":["]"]}],"c":null,"time":0,"method":"GET","path":"/a","f":[[]]}`, "1970-01-01T00:00:00Z GET /a whole"},

		// what diana serve logs
		{`time=2026-01-02T03:04:05.678Z level=INFO msg=request method=GET path=/a%2Fb status=200 bytes=5 duration=1.5ms request_id=x client=::1`,
			"2026-01-02T03:04:05.6765Z GET /a%2Fb from ::1 status 200 took 1.5ms"},
		{`time=2026-01-02T03:04:05.678+01:00 level=INFO msg=request method=GET path="/a=b\"" status=200 duration=1µs client=1.2.3.4 aborted=true`,
			`2026-01-02T02:04:05.677999Z GET /a=b" from 1.2.3.4 status 200 took 1µs`},
		{`time=2026-01-02T03:04:05.678Z level=WARN msg="Redis is out of reach: on_error decides" gateways=1`, "other"},
		{`time=2026-01-02T03:04:05.678Z level=INFO msg=draining`, "other"},
		{`time=2026-01-02T03:04:05.678Z msg=request method=GET path=/a nonsense`, "broken: expected key=value, separated by spaces"},
		{`time="2026`, `broken: a value in quotes has no end, expected a "`},
		{`time="a"b=c`, "broken: expected a space after a value in quotes"},
	} {
		if got := read(tc.line); got != tc.want {
			t.Errorf("%s\ngot  %s\nwant %s", tc.line, got, tc.want)
		}
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10/Oct/2000:13:55:36 +0530":   "2000-10-10T08:25:36Z",
		"29/Feb/2024:23:59:60 +0000":   "2024-03-01T00:00:00Z", // a leap second
		"29/Feb/2023:00:00:00 +0000":   "",
		"10/Okt/2000:13:55:36 +0000":   "",
		"10/anF/2000:13:55:36 +0000":   "",
		"10/Oct/2000:24:55:36 +0000":   "",
		"10/Oct/2000:13:55:36 00000":   "",
		"10/Oct/1969:13:55:36 +0000":   "",
		"10/Oct/2300:13:55:36 +0000":   "",
		"2024-02-29T01:02:03Z":         "2024-02-29T01:02:03Z",
		"2024-02-29 01:02:03":          "2024-02-29T01:02:03Z",
		"2024-02-29T01:02:03.1234567Z": "2024-02-29T01:02:03.123456Z",
		"2024-02-29T01:02:03,5+02:00":  "2024-02-28T23:02:03.5Z",
		"2024-02-29T01:02:03 +0200":    "2024-02-28T23:02:03Z",
		"2024-02-29T01:02:03X":         "",
		"2024-02-30T01:02:03Z":         "",
		"2024-13-01T01:02:03Z":         "",
		"2024-1-01T01:02:03Z":          "",
		"0":                            "1970-01-01T00:00:00Z",
		"1700000000":                   "2023-11-14T22:13:20Z",
		"1700000000.5":                 "2023-11-14T22:13:20.5Z",
		"1700000000.x":                 "",
		"170000000000000000000":        "",
		"9999999999999999999":          "",
		"NaN":                          "",
		"-1":                           "",
		"":                             "",
	} {
		var c clock
		at, _, ok := c.any(text)
		got := ""
		if ok {
			got = time.UnixMicro(at).UTC().Format(time.RFC3339Nano)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// line is a line of the combined form at so many seconds.
func line(second int, target string) string {
	at := time.Unix(int64(second), 0).UTC().Format("02/Jan/2006:15:04:05 -0700")
	return fmt.Sprintf("192.0.2.1 - - [%s] \"GET %s HTTP/1.1\" 200 0\n", at, target)
}

func compressed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// open opens files with these texts, and stdin.
func open(t *testing.T, stdin io.Reader, told *[]Broken, texts ...string) *Reader {
	t.Helper()
	var files []string
	for i, text := range texts {
		name := filepath.Join(t.TempDir(), fmt.Sprintf("%d.log", i))
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
	}
	if stdin != nil {
		files = append(files, "-")
	}
	r, err := Open(files, stdin, testNames, func(b Broken) { *told = append(*told, b) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// targets returns the targets of all entries, in their order.
func targets(t *testing.T, r *Reader) (all []string) {
	t.Helper()
	before := int64(0)
	for e := r.Next(); e != nil; e = r.Next() {
		if e.Start < before {
			t.Errorf("%s: time goes back by %d µs", e.Target, before-e.Start)
		}
		before = e.Start
		all = append(all, strings.Clone(e.Target))
	}
	return all
}

func TestReaderMerges(t *testing.T) {
	t.Parallel()
	var told []Broken
	r := open(t, strings.NewReader(line(1, "/stdin")+line(15, "/stdin2")), &told,
		line(10, "/c")+"what\n"+line(12, "/e")+line(11, "/d"),                         // slightly out of order
		compressed(t, line(1, "/a")+line(2, "/b"))+compressed(t, "\n"+line(12, "/f")), // two of gzip's members
		"", // empty
		strings.ReplaceAll(line(13, "/g"), "\n", "\r\n")+strings.TrimSuffix(line(14, "/h"), "\n"),
		compressed(t, "\uFEFF"+`{"ts":14,"method":"GET","path":"/i"}`),
	)
	want := "/a /stdin /b /c /d /e /f /g /h /i /stdin2"
	if got := strings.Join(targets(t, r), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(told) != 1 || !strings.HasSuffix(told[0].File, "0.log") || told[0].Line != 2 {
		t.Errorf("broken: %v", told)
	}
	for i, want := range []File{
		{Lines: 4, Requests: 3, Broken: 1}, {Lines: 4, Requests: 3, Others: 1}, {}, {Lines: 2, Requests: 2}, {Lines: 1, Requests: 1}, {Lines: 2, Requests: 2},
	} {
		got := r.Files[i]
		got.Name, got.Size = "", 0
		if got != want {
			t.Errorf("file %d: %+v, want %+v", i, got, want)
		}
	}
}

// A long request is logged late, and sorted by the time when it came.
func TestReaderOrdersByStart(t *testing.T) {
	t.Parallel()
	var told []Broken
	r := open(t, nil, &told, `{"ts":10,"method":"GET","path":"/short","duration":1}
{"ts":11,"method":"GET","path":"/long","duration":10}
{"ts":200,"method":"GET","path":"/next","duration":1}
{"ts":201,"method":"GET","path":"/too-long","duration":200}
`)
	if got := strings.Join(targets(t, r), " "); got != "/long /short /next /too-long" && got != "/long /short /too-long /next" {
		t.Error(got)
	}
	if r.Files[0].Late != 1 {
		t.Errorf("%+v: want one that is late", r.Files[0])
	}
}

func TestReaderErrors(t *testing.T) {
	t.Parallel()
	if _, err := Open([]string{"missing", t.TempDir(), "gone"}, nil, testNames, nil); err == nil ||
		!strings.Contains(err.Error(), "missing") || !strings.Contains(err.Error(), "directory") || !strings.Contains(err.Error(), "gone") {
		t.Errorf("got %v, want all that cannot be read", err)
	}

	var told []Broken
	whole := compressed(t, strings.Repeat(line(1, "/a"), 1000))
	r := open(t, nil, &told, whole[:len(whole)-20], line(2, "/b"))
	if n := len(targets(t, r)); n < 2 || r.Files[0].Error == "" || r.Files[1].Error != "" {
		t.Errorf("%d requests, %+v: want those in front of the end, and an error", n, r.Files)
	}
}

func TestReaderLongLines(t *testing.T) {
	t.Parallel()
	for _, n := range []int{longestLine - 200, longestLine - 1, longestLine, longestLine + 1, longestLine + blockSize, 5 * longestLine} {
		var told []Broken
		long := line(2, "/"+strings.Repeat("x", n))
		r := open(t, nil, &told, line(1, "/a")+long+line(3, "/b")+long)
		got := targets(t, r)
		kept := len(got) == 4 && len(got[1]) == n+1 && len(got[2]) == n+1 // those at 2 s, in front of /b
		if thrown := len(got) == 2 && len(told) == 2 && told[0].Line == 2 && told[1].Line == 4; !thrown && !kept || n < longestLine-100 && !kept || n > 2*longestLine && !thrown {
			t.Errorf("%d bytes: %d requests, broken %v", n, len(got), told)
		}
	}
}

// Whatever the order in a file is, times never decrease, no entry is lost, and few are held back.
func TestReaderRandomOrder(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	var want []string
	now := 0
	for i := range 20_000 {
		now += random.IntN(3)
		at := now - random.IntN(50)
		if random.IntN(1000) == 0 {
			at = now + 1_000_000 // a clock that was wrong for a moment
		}
		target := fmt.Sprintf("/%d", i)
		want = append(want, target)
		text.WriteString(line(max(at, 0), target))
	}
	var told []Broken
	r := open(t, nil, &told, text.String())
	got := targets(t, r)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(told) > 0 {
		t.Errorf("%d of %d requests, broken %v", len(got), len(want), told)
	}
}

// The text of the entries that are held back is bounded, also if they are far ahead of the rest.
func TestReaderHoldsLittle(t *testing.T) {
	t.Parallel()
	pipe, in := io.Pipe()
	go func() {
		defer in.Close()
		long := strings.Repeat("x", 2000)
		for i := range 20_000 { // 40 MB within a second
			_, _ = io.WriteString(in, line(1000+i%2, "/"+long))
		}
	}()
	var told []Broken
	r := open(t, pipe, &told)
	most := 0
	for e := r.Next(); e != nil; e = r.Next() {
		most = max(most, len(r.order.heap))
	}
	if most*2000 > 3*heldText {
		t.Errorf("%d lines of 2 kB were held back", most)
	}
}

// A line whose clock was far ahead does not change the time of the lines after it.
func TestReaderForgetsWrongClock(t *testing.T) {
	t.Parallel()
	pipe, in := io.Pipe()
	const n, wrong = 10_000, 100
	go func() {
		defer in.Close()
		long := strings.Repeat("x", 2000)
		for i := range n { // 20 MB
			at := 1000 + i/10
			if i == wrong {
				at = 1e9
			}
			_, _ = io.WriteString(in, line(at, "/"+long))
		}
	}()
	var told []Broken
	r := open(t, pipe, &told)
	for e := r.Next(); e != nil; e = r.Next() {
		if at := int64(1000+(e.Line-1)/10) * 1e6; e.Line != wrong+1 && e.Start != at {
			t.Fatalf("line %d is %d s too late", e.Line, (e.Start-at)/1e6)
		}
	}
	if f := r.Files[0]; f.Requests != n || f.Late != 1 {
		t.Errorf("%d requests, %d late, want %d and 1", f.Requests, f.Late, n)
	}
}

// A released entry keeps no text in memory. Otherwise each unused entry would keep a block.
func TestReaderLetsGo(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for second := range 600 { // ever fewer
		for i := range max(200-second/2, 1) {
			fmt.Fprintf(&text, `{"ts":%d,"method":"GET","path":"/%d","remote_addr":"192.0.2.1","host":"a","args":"b","http_user_agent":"c"}`+"\n", second, i)
		}
	}
	var told []Broken
	r := open(t, nil, &told, text.String())
	targets(t, r)
	if len(r.free) < 1000 {
		t.Errorf("%d entries were held back, want many", len(r.free))
	}
	for _, e := range r.free {
		if e.Target+e.Method+e.Query+e.Host+e.Remote+strings.Join(e.Headers, "") != "" {
			t.Fatalf("%+v is kept", e)
		}
	}
}

// No line causes a panic, and each request has all required fields.
func FuzzLine(f *testing.F) {
	f.Add(line(1, "/a?b=c"))
	f.Add(`203.0.113.7 - a [10/Oct/2000:13:55:36 -0700] "GET /\x22 HTTP/1.1" 200 2326 "-" "\"" "1.2.3.4"`)
	f.Add(`{"ts":1646861401.5,"request":{"method":"GET","uri":"/a","headers":{"User-Agent":["x\u0020"]}},"a":[{"b":"]"}],"duration":"1ms"}`)
	f.Add(`{"time":"2026-01-02T03:04:05,678+01:00","request":"GET /a HTTP/1.1","args":"b"}`)
	f.Add(`time=2026-01-02T03:04:05.678Z msg=request method=GET path="/a=b\"" status=200 duration=1µs client=1.2.3.4`)
	f.Fuzz(func(t *testing.T, text string) {
		p := parser{names: testNames}
		e := &Entry{Headers: make([]string, len(testNames.Headers))}
		for range 2 { // the second time with what the first has left
			k, why := p.parse(text, e)
			switch {
			case k == request && (e.Method == "" || e.Target == "" || e.Start < earliest || e.Start >= latest || e.Duration < Unknown):
				t.Fatalf("%+v", e)
			case (k == broken) != (why != ""):
				t.Fatalf("kind %d: %q", k, why)
			}
		}
	})
}
