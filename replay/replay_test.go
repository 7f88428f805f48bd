// SPDX-License-Identifier: MIT

package replay_test

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/replay"
)

// lines is the text of a script.
func lines(l ...string) string { return strings.Join(l, "\n") }

func parse(text string) (*replay.Script, error) {
	return replay.Parse("x", strings.NewReader(text), limit.Algorithms())
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	const a = "limit a rpu=3"
	for _, tc := range []struct {
		text string
		want string // all errors, without their "x:"
	}{
		{"", `1:1: expected a limit or config line, found the end of the file`},
		{"# nothing\n\n", `3:1: expected a limit or config line, found the end of the file`},
		{"limits a rpu=1", `1:1: expected "limit", "config" or a time such as 1.5s, found "limits"`},
		{`""`, `1:1: expected "limit", "config" or a time such as 1.5s, found ""`},
		{"0s take 1 allowed", `1:1: expected a limit or config line above the first row`},

		{"limit", `1:6: expected a name for the limit, found the end of the line`},
		{"limit rpu=1", `1:7: expected a name for the limit, found "rpu=1"`},
		{"limit a", `1:8: expected rpu=NUMBER`},
		{"limit a rpu", `1:9: expected algo, rpu, unit, zone, burst, queue, slices, align, warmup or min, with = and a value, found "rpu"`},
		{"limit a rpu=1 rpu=1", `1:15: rpu is given twice`},
		{"limit a rpu=1 rate=1", `1:15: unknown key "rate", expected algo, rpu, unit, zone, burst, queue, slices, align, warmup or min`},
		{"limit a rpu=x", `1:13: expected a whole number, 0 to 1000000000, found "x"`},
		{"limit a rpu=", `1:13: expected a whole number, 0 to 1000000000, found ""`},
		{"limit a rpu=1000000001", `1:13: expected a whole number, 0 to 1000000000, found "1000000001"`},
		{"limit a rpu=1 algo=XX", `1:20: expected one of TB, W, SW, SL, LB, C, found "XX"`},
		{"limit a rpu=1 unit=1us", `1:20: expected second, minute, hour, day, week, month, year, total or a duration of 1ms to 744h, found "1us"`},
		{"limit a rpu=1 burst=0", `1:21: expected a whole number, 1 to 1000000000, found "0"`},
		{"limit a rpu=1 algo=LB queue=x", `1:29: expected a whole number, 0 to 1000000000, found "x"`},
		{"limit a rpu=1 algo=SW slices=1", `1:30: expected a whole number, 2 to 100, found "1"`},
		{"limit a rpu=1 algo=W align=last", `1:28: expected clock or first, found "last"`},
		{"limit a unit=hour rpu=1 algo=C", `1:9: unit means nothing to C`},
		{"limit a rpu=1 unit=744h burst=2000", `1:7: limit: a burst of 2000 at 1 per 744h0m0s: it takes over a hundred years to fill`},
		{`limit a rpu=1 algo="token bucket`, `1:20: expected a closing "`},
		{lines(a, a), `2:7: two limits have the name "a"`},

		{lines(a, "0s"), `2:3: expected take or give, found the end of the line`},
		{lines(a, "0x take 1 allowed"), `2:1: expected a time such as 1.5s, in whole microseconds, of up to 50 years, found "0x"`},
		{lines(a, "1ns take 1 allowed"), `2:1: expected a time such as 1.5s, in whole microseconds, of up to 50 years, found "1ns"`},
		{lines(a, "-500000h take 1 allowed"), `2:1: expected a time such as 1.5s, in whole microseconds, of up to 50 years, found "-500000h"`},
		{lines(a, "0s take"), `2:8: expected the cost of the request, found the end of the line`},
		{lines(a, "0s take 0 allowed"), `2:9: expected a whole number, 1 to 1000000000, found "0"`},
		{lines(a, "0s take 1  # well?"), `2:10: expected allowed or refused, found the end of the line`},
		{lines(a, "0s take 1 for"), `2:14: expected an actor, found the end of the line`},
		{lines(a, "0s take 1 granted remaining=2"), `2:11: expected allowed or refused, found "granted"`},
		{lines(a, "0s take 1 allowed now"), `2:19: expected remaining or wait, with = and a value, found "now"`},
		{lines(a, "0s take 1 allowed retry=1s"), `2:19: unknown key "retry", expected remaining or wait`},
		{lines(a, "0s take 1 refused wait=1s"), `2:19: unknown key "wait", expected remaining or retry`},
		{lines(a, "0s take 1 refused retry=-1s"), `2:25: expected a duration such as 1.5s, in whole microseconds, found "-1s"`},
		{lines(a, "0s take 1 refused by"), `2:21: expected names of limits, found the end of the line`},
		{lines(a, "0s take 1 refused by a,b"), `2:22: expected names of limits above, separated by commas, each once, found "a,b"`},
		{lines(a, "0s take 1 refused by a,a"), `2:22: expected names of limits above, separated by commas, each once, found "a,a"`},
		{lines(a, "0s take 1 allowed remaining=1,2"), `2:29: expected a number for each limit, 1, found 2`},
		{lines(a, "limit b rpu=1", "0s take 1 allowed remaining=-,x"), `3:31: expected a whole number, 0 to 999999999999999, found "x"`},
		{lines(a, "0s give 1"), `2:10: expected "at", found the end of the line`},
		{lines(a, "0s give 1 at"), `2:13: expected a time such as 1.5s, found the end of the line`},
		{lines(a, "0s give 1 at 0s"), `2:14: no take 1 at that time is left to refund`},
		{lines(a, "0s take 1 for b allowed", "0s give 1 at 0s"), `3:14: no take 1 at that time is left to refund`},
		{lines(a, "0s take 1 allowed", "0s give 1 at 0s", "0s give 1 at 0s"), `4:14: no take 1 at that time is left to refund`},
		{lines(a, "0s take 1 allowed", "0s give 1 at 0s allowed"), `3:17: expected the end of the line, found "allowed"`},

		{"config", `1:7: expected the name of a configuration, found the end of the line`},
		{`config ""`, `1:8: expected the name of a configuration, found ""`},
		{"config a b", `1:10: expected the end of the line, found "b"`},
		{lines("config a", "config b"), `2:1: expected a row, found "config"`},
		{lines(a, "config b"), `2:1: expected a row, found "config"`},
		{lines("config b", a), `2:1: expected a row of requests below the config line, found "limit"`},
		{lines("config a", "0s"), `2:3: expected a method such as GET, found the end of the line`},
		{lines("config a", "0s take 1 allowed"), `2:4: expected a method such as GET, found "take"`},
		{lines("config a", "0s GET"), `2:7: expected a URL, found the end of the line`},
		{lines("config a", "0s GET /"), `2:9: expected allowed or refused, found the end of the line`},
		{lines("config a", "0s GET / maybe"), `2:10: expected allowed, refused, or the client, such as ip=203.0.113.7 or header:NAME=VALUE, found "maybe"`},
		{lines("config a", "0s GET / ip=me allowed"), `2:13: expected an address, found "me"`},
		{lines("config a", "0s GET / lasts=x allowed"), `2:16: expected a duration such as 1.5s, in whole microseconds, found "x"`},
		{lines("config a", "0s GET / account=a account=b allowed"), `2:20: account is given twice`},
		{lines("config a", "0s GET / allowed status=200"), `2:18: unknown key "status", expected remaining or wait`},
		{lines("config a", "0s GET / refused status=99"), `2:25: expected a whole number, 100 to 599, found "99"`},
		{lines("config a", "0s GET / refused by a,a"), `2:21: expected names of limits above, separated by commas, each once, found "a,a"`},
		{lines(a, "0s take 1 refused status=503"), `2:19: unknown key "status", expected remaining or retry`},

		// All of them come out.
		{
			lines("limit a rpu=x unit=y", "", "1 take 1 allowed", "\t0s\ttake 1 for bob refused retry=z remaining=z"),
			lines(
				`1:13: expected a whole number, 0 to 1000000000, found "x"`,
				`x:1:20: expected second, minute, hour, day, week, month, year, total or a duration of 1ms to 744h, found "y"`,
				`x:3:1: expected a time such as 1.5s, in whole microseconds, of up to 50 years, found "1"`,
				`x:4:34: expected a duration such as 1.5s, in whole microseconds, found "z"`,
				`x:4:46: expected a whole number, 0 to 999999999999999, found "z"`,
			),
		},
	} {
		script, err := parse(tc.text)
		if script != nil || err == nil || err.Error() != "x:"+tc.want {
			t.Errorf("%s\ngot  %v\nwant x:%s", tc.text, err, tc.want)
		}
	}
}

// good scripts are kept by the algorithms of package limit.
var good = []string{
	"limit a rpu=0",
	"limit a rpu=1\n0s take 1 allowed",
	"\uFEFFlimit a rpu=1\r\n0s take 1 allowed # yes\r\n0s take 1 refused\r\n",
	"limit a unit=second rpu=2 algo=\"token bucket\" burst=3\n0s take 3 allowed remaining=0 wait=0s",
	"limit a algo=\"Sliding Log\" rpu=1 unit=2h\n-1h take 1 for \"a b\" allowed\n+1h take 1 for \"a b\" allowed",
	lines(
		"limit a algo=C rpu=2",
		"limit b algo=W rpu=1 align=first unit=1ms",
		"0s  take 1          allowed        remaining=1,0",
		"0s  take 1          refused by b   remaining=1,- retry=1ms",
		"0s  take 2          refused by b,a remaining=1,0",
		"0s  take 1 for you  allowed        remaining=-,0",
		"0s  give 1 at 0s",
		"0s  take 1          allowed        remaining=1,0",
		"0s  give 1 at 0s for you",
		"limit a algo=LB rpu=10 queue=1 # another case",
		"0s  take 1          allowed        remaining=1",
		"0s  take 1          allowed        wait=100ms",
		"0s  take 1          refused        retry=100ms",
		"50ms give 1 at 0s",
		"50ms take 1         allowed        wait=50ms",
	),
}

func TestRun(t *testing.T) {
	t.Parallel()
	for _, text := range good {
		script, err := parse(text)
		if err != nil {
			t.Errorf("%s\n%v", text, err)
			continue
		}
		if err := script.Run(&replay.Meters{}); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
	}
}

func TestRunDifferences(t *testing.T) {
	t.Parallel()
	script, err := parse(lines(
		"limit second rpu=1",
		"limit minute algo=SL rpu=2 unit=minute",
		"",
		"0s  take 1  refused",
		"0s  take 1  refused by minute  # not a part of the row",
		"1s  take 1  allowed            remaining=0,1",
		"1s  take 1  refused by minute,second  retry=1s",
		"2s  take 1  allowed",
		"0s  give 1 at 2s               # that was not made",
		"2s  take 1  refused            remaining=-,0",
		"2s  take 1  refused            retry=57s",
	))
	if err != nil {
		t.Fatal(err)
	}
	const want = `x:4: expected refused, got allowed remaining=0,1 wait=0s
x:5: expected refused by minute, got refused by second remaining=0,1 retry=1s
x:6: expected allowed remaining=0,1, got allowed remaining=0,0 wait=0s
x:7: expected refused by minute,second retry=1s, got refused by second,minute remaining=0,0 retry=59s
x:8: expected allowed, got refused by minute remaining=1,0 retry=58s
x:11: expected refused retry=57s, got refused by minute remaining=1,0 retry=58s`
	if err := script.Run(&replay.Meters{}); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// A script sends its requests to a configuration and compares the answers.
func TestPlay(t *testing.T) {
	t.Parallel()
	script, err := parse(lines(
		"limit a rpu=1",
		"0s take 1 allowed",
		"config one.yaml",
		`1s GET /a?b=c  ip=2001:db8::1 header:X-A="b c" header:X-A=d cookie:e=f account=ann lasts=2s  allowed`,
		"2s POST http://host/  refused by a,b,c  retry=1s status=429  remaining=0,-",
		"2s POST /  refused by c,a,b",
		"2s POST /  refused by a  # which is wrong",
		"2s POST /  refused retry=2s",
		"2s POST /  refused status=503",
		"2s POST /  refused remaining=1,-",
		"2s POST /  refused remaining=0",
		"2s POST /  allowed",
		"2s GET /   allowed wait=1s",
		"2s GET /   allowed remaining=7,8 wait=3s",
		"2s PUT /   allowed",
		"config missing.yaml",
		"0s GET / allowed",
	))
	if err != nil {
		t.Fatal(err)
	}
	if n := script.Rows(); n != 14 {
		t.Errorf("%d rows, want 14", n)
	}
	var asked []replay.Request
	err = script.Play(&replay.Meters{}, func(config string) (replay.Gateway, error) {
		if config != "one.yaml" {
			return nil, errors.New("no " + config)
		}
		return func(r replay.Request) (replay.Answer, error) {
			asked = append(asked, r)
			switch r.Method {
			case "GET":
				return replay.Answer{Allowed: true, Wait: 3 * time.Second, Remaining: []int64{7, 8}}, nil
			case "POST":
				return replay.Answer{By: []string{"a", "b,c"}, Retry: time.Second, Remaining: []int64{0, 5}, Status: 429}, nil
			}
			return replay.Answer{}, errors.New("no " + r.Method)
		}, nil
	})
	const want = `x:7: expected refused by a, got refused by a,b,c remaining=0,5 retry=1s status=429
x:8: expected refused retry=2s, got refused by a,b,c remaining=0,5 retry=1s status=429
x:9: expected refused status=503, got refused by a,b,c remaining=0,5 retry=1s status=429
x:10: expected refused remaining=1,-, got refused by a,b,c remaining=0,5 retry=1s status=429
x:11: expected refused remaining=0, got refused by a,b,c remaining=0,5 retry=1s status=429
x:12: expected allowed, got refused by a,b,c remaining=0,5 retry=1s status=429
x:13: expected allowed wait=1s, got allowed remaining=7,8 wait=3s
x:15: no PUT
x:16: no missing.yaml`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	first := replay.Request{
		At: replay.Start.Add(time.Second), Method: "GET", URL: "/a?b=c", IP: netip.MustParseAddr("2001:db8::1"),
		Header: []string{"X-A: b c", "X-A: d", "Cookie: e=f"}, Actors: map[string]string{"account": "ann"}, Lasts: 2 * time.Second,
	}
	if len(asked) != 12 || !reflect.DeepEqual(asked[0], first) {
		t.Errorf("asked %d times, first for\n%+v\nwant\n%+v", len(asked), asked, first)
	}
	if err := script.Run(&replay.Meters{}); err == nil || !strings.HasPrefix(err.Error(), "x:3: a configuration cannot be played here") {
		t.Errorf("Run: %v", err)
	}
}

// No panic, and a script or an error.
func FuzzParse(f *testing.F) {
	for _, text := range good {
		f.Add(text)
	}
	f.Add(`limit a rpu="1`)
	f.Add("config a.yaml\n0s GET /a?b ip=::1 header:A=\"b c\" lasts=1s refused by \"a b\" remaining=-,1 retry=1s status=503")
	f.Add(`"" give 1 at 0s`)
	f.Fuzz(func(t *testing.T, text string) {
		script, err := parse(text)
		if (script == nil) == (err == nil) {
			t.Fatalf("script %v and error %v", script, err)
		}
		if script != nil {
			_ = script.Play(&replay.Meters{}, func(string) (replay.Gateway, error) { // a wrong result, but no panic
				return func(r replay.Request) (replay.Answer, error) {
					return replay.Answer{By: []string{r.Method}}, nil
				}, nil
			})
		}
	})
}

func Example() {
	script, err := replay.Parse("tables.replay", strings.NewReader(`
# Source 003: at most 1 a second and 5 a minute, together.
limit second  algo=SL rpu=1
limit minute  algo=SL rpu=5 unit=minute

# time  action            result
0s      take 1            allowed            remaining=0,4
0s      take 1            refused by second  remaining=0,4  retry=1s
0s      take 1 for alice  allowed            # someone else
0s      give 1 at 0s                         # charged to none after all
0.5s    take 1            allowed
0.6s    take 1            allowed            # wrong
`), limit.Algorithms())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(script.Run(&replay.Meters{}))
	// Output: tables.replay:12: expected allowed, got refused by second remaining=0,4 retry=900ms
}
