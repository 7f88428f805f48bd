// SPDX-License-Identifier: MIT

package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/source"
)

func TestRemoteWhere(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ url, want string }{
		{"etcd://h:2379/k", "etcd://h:2379/k"},
		{"etcd://u:s3cret@h:2379/k", "etcd://h:2379/k"},
		{"https://s3cret@h/a/b.yaml?dc=x&token=s3cret", "https://h/a/b.yaml?..."},
		{"https://h/?", "https://h/?"},
		{"file:///etc/diana.yaml", "file:///etc/diana.yaml"},
		{"redis://:s3cret@[::1]:6379/0/k", "redis://[::1]:6379/0/k"},
		{"http://u:s3cret@h:x/", "(not a URL)"},
	} {
		if got := (&Remote{URL: row.url}).Where(); got != row.want {
			t.Errorf("%s: %s, want %s", row.url, got, row.want)
		}
	}
}

func TestRemoteOptions(t *testing.T) {
	t.Setenv("DIANA_TEST_PASSWORD", "s3cret")
	t.Setenv("DIANA_TEST_TOKEN", "t0ken")
	password, token := parseSecret(t, "env:DIANA_TEST_PASSWORD"), parseSecret(t, "env:DIANA_TEST_TOKEN")
	_, dir := tlsServer(t)
	describe := func(o source.Options) string {
		text := o.URL.String()
		if o.Credentials != nil {
			u, p, err := o.Credentials()
			text += fmt.Sprintf(" %s:%s %v", u, p, err)
		}
		if o.Token != nil {
			token, err := o.Token()
			text += fmt.Sprintf(" token %s %v", token, err)
		}
		if o.TLS != nil {
			text += " TLS " + o.TLS.ServerName
		}
		return text
	}
	for _, row := range []struct {
		remote Remote
		want   string
	}{
		{Remote{URL: "etcd://h/k"}, "etcd://h/k"},
		{Remote{URL: "http://ann:p%40ss@h/k?a=b"}, "http://h/k?a=b ann:p@ss <nil>"},
		{Remote{URL: "http://ann@h/k"}, "http://h/k ann: <nil>"},
		{Remote{URL: "redis://h/0/k", Password: password}, "redis://h/0/k :s3cret <nil>"},
		{Remote{URL: "etcd://h/k", Username: "ann", Password: password}, "etcd://h/k ann:s3cret <nil>"},
		{Remote{URL: "consul://h/k", Token: token, TLS: &TLS{ServerName: "s"}}, "consul://h/k token t0ken <nil> TLS s"},
	} {
		o, err := row.remote.Options()
		if err != nil {
			t.Errorf("%s: %v", row.remote.Where(), err)
		} else if got := describe(o); got != row.want {
			t.Errorf("%s: %s, want %s", row.remote.Where(), got, row.want)
		}
	}

	// Secrets are asked for each time.
	r := Remote{URL: "etcd://h/k", Username: "ann", Password: password, Token: token}
	o, err := r.Options()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DIANA_TEST_PASSWORD", "other")
	t.Setenv("DIANA_TEST_TOKEN", "")
	want := "etcd://h/k ann:other <nil> token  remote.token: the environment variable DIANA_TEST_TOKEN is not set, or empty"
	if got := describe(o); got != want {
		t.Errorf("%s, want %s", got, want)
	}

	for _, row := range []struct {
		remote Remote
		want   string
	}{
		{Remote{URL: "etcd://h/k", Password: parseSecret(t, "file:DIR/absent"), Token: token, TLS: &TLS{CA: dir + "/cert.key"}},
			"remote.password: open DIR/absent: no such file or directory\n" +
				"remote.token: the environment variable DIANA_TEST_TOKEN is not set, or empty\n" +
				"remote.tls: DIR/cert.key: expected certificates in PEM, found none"},
		{Remote{URL: "etcd://u:s3cret@h:x/k"}, "remote.url: expected a URL"},
	} {
		if text := row.remote.Password.String(); text != "" {
			row.remote.Password = parseSecret(t, strings.Replace(text, "DIR", dir, 1))
		}
		o, err := row.remote.Options()
		if err == nil || strings.ReplaceAll(err.Error(), dir, "DIR") != row.want || o.Credentials != nil {
			t.Errorf("%v, want %s", err, row.want)
		}
	}
}

// A program without sources cannot follow a centre.
func TestNoSources(t *testing.T) {
	t.Parallel()
	v := DefaultVocabulary()
	v.Sources = nil
	_, err := v.Parse("x", []byte("remote: {url: 'etcd://h/k'}"))
	want := "x:1:9: remote: this program has no sources of configurations, expected none to be asked for"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A source from outside is as good as Diana's own.
func TestSourceFromOutside(t *testing.T) {
	t.Parallel()
	v := words()
	v.Sources = append(v.Sources, source.Kind{Schemes: []string{"zk"}, Form: "zk://HOST/NODE"})
	c, err := v.Parse("x", []byte("remote: {url: 'zk://ann:s3cret@h'}"))
	if err != nil || c.Remote.Where() != "zk://h" {
		t.Errorf("%+v, %v", c, err)
	}
}

// What a kind has against how it is asked is a mistake of the configuration, and found
// without reading a secret.
func TestSourceIsAskedInAnUnknownWay(t *testing.T) {
	t.Parallel()
	v := words()
	v.Sources = slices.DeleteFunc(source.Kinds(), func(k source.Kind) bool { return k.Schemes[0] != "http" && k.Schemes[0] != "redis" })
	for text, want := range map[string]string{
		"{url: 'http://h/k', password: 'file:/absent', token: 'env:DIANA_TEST_ABSENT'}": "x:1:9: remote: expected either a token, or a username and a password",
		"{url: 'redis://h/0/k', token: t}":                                              "x:1:9: remote: expected a username and a password, Redis knows no token",
	} {
		if _, err := v.Parse("x", []byte("remote: "+text)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// What is in force where a centre is followed: its limits with the settings of the file.
func TestCompose(t *testing.T) {
	t.Parallel()
	const global = "url: /r\nrules: [{rpu: 70000, algo: SL, scope: global}, {rpu: 1, name: x}]"
	const without = "centre:2:39: scope: global without redis, so each process counts for itself (on_error: share)"
	const long = "centre:2:15: rpu: SL remembers at most 65536 moments of an actor (768 KiB), and is less exact if an actor needs more; SW needs far less"
	const everyone = "file:1:30: trusted_proxies: this trusts everyone, so any client can claim any address"
	for _, row := range []struct{ local, document, want string }{
		{"max_keys: 5\nremote: {url: 'etcd://h/k'}\nlimits: []", "url: /r\nrules: [{rpu: 1}]", ""},
		{"remote: {url: 'etcd://h/k'}", global, long + "\n" + without},
		{"remote: {url: 'etcd://h/k'}\nredis: {cluster: ['h:1']}", global, long},
		{"identity: {trusted_proxies: [0.0.0.0/0]}\nremote: {url: 'etcd://h/k'}", global,
			everyone + "\n" + long + "\n" + without},
		{"remote: {url: 'etcd://h/k'}", "[]", "centre:1:1: there are no entries, so nothing is limited"},
	} {
		local, err := words().Parse("file", []byte(row.local))
		if err != nil {
			t.Fatal(err)
		}
		document, err := words().ParseRemote("centre", []byte(row.document))
		if err != nil {
			t.Fatal(err)
		}
		before := [...]string{fmt.Sprintf("%+v", local), fmt.Sprintf("%+v", document)}
		c := local.WithRemote(document)
		if got := c.Warnings.Error(); got != row.want {
			t.Errorf("%s: warnings\n%s\nwant\n%s", row.local, got, row.want)
		}
		if c.Source != "centre" || c.Version != document.Version || fmt.Sprint(c.Limits) != fmt.Sprint(document.Limits) {
			t.Errorf("%s: not the document's: %+v", row.local, c)
		}
		if c.MaxKeys != local.MaxKeys || c.Redis != local.Redis || c.Remote != local.Remote || fmt.Sprint(c.Identity) != fmt.Sprint(local.Identity) {
			t.Errorf("%s: not the file's: %+v", row.local, c)
		}
		if after := [...]string{fmt.Sprintf("%+v", local), fmt.Sprintf("%+v", document)}; after != before {
			t.Errorf("%s: an argument has changed", row.local)
		}
	}
}
