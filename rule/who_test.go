// SPDX-License-Identifier: MIT

package rule

import (
	"strings"
	"testing"
)

func TestParseWho(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // as String has it
		"10.0.0.0/8": "network 10.0.0.0/8", "0.0.0.0/0": "network 0.0.0.0/0", "10.0.0.1": "network 10.0.0.1", "10.0.0.1/32": "network 10.0.0.1",
		"2001:db8::/32": "network 2001:db8::/32", "2001:DB8:0::1": "network 2001:db8::1", "::/0": "network ::/0", "2001:db8::1/128": "network 2001:db8::1",
		"::ffff:10.0.0.1": "network 10.0.0.1", "::ffff:10.0.0.0/104": "network 10.0.0.0/8", "::ffff:0:0/96": "network 0.0.0.0/0",
		"00:1a:2b:3c:4d:5e:6f:70": "network 0:1a:2b:3c:4d:5e:6f:70",

		"ann": "value ann", "12345": "value 12345", "a b": "value a b", "1.2.3": "value 1.2.3", "a/1": "value a/1", "1/2": "value 1/2",
		"00:1a:2b:3c:4d:5e": "value 00:1a:2b:3c:4d:5e", "a=b": "value a=b", "a::b:z": "value a::b:z", "10.0.0.1:80": "value 10.0.0.1:80",
		"=10.0.0.1": "value =10.0.0.1", "=ann": "value ann", "==": "value ==", "==x": "value ==x", "=10.0.0.7/8": "value =10.0.0.7/8",
		"=00:1a:2b:3c:4d:5e:6f:70": "value =00:1a:2b:3c:4d:5e:6f:70",
	} {
		w, err := parseWho(text)
		kind := "value "
		if w.Value == "" {
			kind = "network "
		}
		if err != nil || kind+w.String() != want {
			t.Errorf("%q: %s%v, %v, want %s", text, kind, w, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "found nothing", "=": "found nothing",
		"10.0.0.7/8":           "expected the network 10.0.0.0/8, or the address 10.0.0.7 alone",
		"2001:db8::1/64":       "expected the network 2001:db8::/64, or the address 2001:db8::1 alone",
		"::ffff:10.0.0.1/104":  "expected the network ::ffff:10.0.0.0/104",
		"::ffff:10.0.0.0/64":   "expected the network ::/64",
		"10.0.0.0/33":          "expected a network such as",
		"10.0.0.0/8/8":         "expected a network such as",
		"10.0.0.0/":            "expected a network such as",
		"10.0.0/8":             "expected a network such as",
		"10.0.0.256":           "expected a network such as",
		"10.00.0.1":            "expected a network such as",
		"1::2::3":              "expected a network such as",
		"fe80::1%eth0":         "expected a network such as",
		"fe80::%eth0/64":       "expected a network such as",
		"2001:db8:::1":         "expected a network such as",
		"2001:db8:0:0:0/129":   "expected a network such as",
		"1:2:3:4:5:6:7:8:9/64": "expected a network such as",
	} {
		if w, err := parseWho(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q", text, w, err, want)
		}
	}
}

// What is read means the same when it is written and read again.
func FuzzParseWho(f *testing.F) {
	for _, s := range []string{"ann", "=10.0.0.1", "==", "10.0.0.0/8", "10.0.0.1", "::ffff:10.0.0.0/104", "2001:db8::/32", "fe80::1%x", "a=b", "00:1a:2b:3c:4d:5e:6f:70"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := parseWho(text)
		if err != nil {
			return
		}
		if (w.Value == "") != w.Network.IsValid() || w.Network.IsValid() && w != w.Canonical() {
			t.Fatalf("%q is %#v", text, w)
		}
		if again, err := parseWho(w.String()); err != nil || again != w {
			t.Errorf("%q is %#v, which is written %q, and that is %#v, %v", text, w, w, again, err)
		}
	})
}
