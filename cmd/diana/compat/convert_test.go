// SPDX-License-Identifier: MIT

package compat

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"testing"

	"github.com/diana-limiter/diana/internal/testproc"
)

// TestConvert: the rules that diana convert makes of the output of nginx -T answer as nginx does. Where it adds a
// remark, they refuse no request that nginx allows.
func TestConvert(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	for name, row := range map[string]struct {
		config string
		differ bool // there are remarks
		paths  []string
	}{
		"same": {alikeConfig, false, []string{
			"/", "/free", "/dry", "/dry/x", "/a", "/a/deep/er", "/a/b/c", "/assets", "/assets/x.css", "/two", "/two/x", "/status", "/exempt", "/counted", "/alone/x", "/post", "/get",
		}},
		"differs": {differentConfig, true, []string{
			"/nested/a/x.css", "/nested/a/b", "/", "/plain", "/own", "/own/static", "/own/x.css", "/exact", "/exact/below", "/x.css", "/assets/y.css", "/regex/x", "/regex/y.css",
			"/agent", "/return", "/shared/a", "/shared/b", "/apix", "/api",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			host := fmt.Sprintf("127.0.0.1:%d", testproc.FreePort(t))
			args := nginxArgs(t, t.TempDir(), replaced(t, row.config, "LISTEN", host, "UPSTREAM", server.URL))
			dump, err := exec.Command(recipes[0].command(), append(args, "-T", "-q")...).Output()
			if err != nil {
				t.Fatal(err)
			}
			convert := exec.Command(*program, "convert", "nginx", "-")
			var remarks bytes.Buffer
			convert.Stdin, convert.Stderr = bytes.NewReader(dump), &remarks
			rules, err := convert.Output()
			var exit *exec.ExitError
			if errors.As(err, &exit) != row.differ || remarks.Len() > 0 != row.differ {
				t.Fatalf("%v, %s%s", err, rules, &remarks)
			}
			start(t, []upstream{{"nginx", host}}, recipes[0].command(), args...)
			diana := gateway(t, server.URL, string(rules))
			for _, path := range row.paths {
				theirs, ours := statuses(t, host, path), statuses(t, diana, path)
				if row.differ {
					for i, status := range theirs {
						if status == http.StatusOK && ours[i] != status {
							t.Errorf("%s: nginx answers %v and Diana %v under\n%s", path, theirs, ours, rules)
							break
						}
					}
				} else if !slices.Equal(theirs, ours) {
					t.Errorf("%s: nginx answers %v and Diana %v under\n%s", path, theirs, ours, rules)
				}
			}
		})
	}
}

// statuses sends requests one after another.
func statuses(t *testing.T, host, path string) (list []int) {
	t.Helper()
	for range 6 {
		res, err := http.Get("http://" + host + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		list = append(list, res.StatusCode)
	}
	return list
}

// The rates are so low that the time a test takes adds no request to a burst.
const alikeConfig = `
geo $office { default 0; 192.0.2.0/24 1; }
geo $local { default 0; 127.0.0.0/8 1; }
map $office $counted { 0 $binary_remote_addr; 1 ""; }
map $local $exempt { 0 $binary_remote_addr; 1 ""; }
limit_req_zone $binary_remote_addr zone=a:1m rate=1r/m;
limit_req_zone $binary_remote_addr zone=assets:1m rate=1r/m;
limit_req_zone "$binary_remote_addr$http_user_agent" zone=first:1m rate=1r/m;
limit_req_zone $server_name zone=second:1m rate=1r/m;
limit_req_zone $remote_addr zone=status:1m rate=1r/m;
limit_req_zone $counted zone=counted:1m rate=1r/m;
limit_req_zone $exempt zone=exempt:1m rate=1r/m;
limit_req_zone $host zone=dry:1m rate=1r/m;
limit_conn_zone $binary_remote_addr zone=alone:1m;
map $request_method $post { default ""; POST $binary_remote_addr; }
map $request_method $get { default ""; GET $binary_remote_addr; HEAD $binary_remote_addr; }
limit_req_zone $post zone=post:1m rate=1r/m;
limit_req_zone $get zone=get:1m rate=1r/m;
limit_req_status 429;
server {
	listen LISTEN;
	server_name shop.example;
	location /dry { limit_req zone=dry; limit_req_dry_run on; proxy_pass UPSTREAM; }
	location / { proxy_pass UPSTREAM;
		location /a { limit_req zone=a burst=2 nodelay; proxy_pass UPSTREAM; location /a/b/ { proxy_pass UPSTREAM; } }
		location /free { proxy_pass UPSTREAM; }
	}
	location ^~ /assets { limit_req zone=assets; proxy_pass UPSTREAM; }
	location /two { limit_req zone=first burst=3 nodelay; limit_req zone=second burst=1 nodelay; proxy_pass UPSTREAM; }
	location /status { limit_req zone=status burst=4 nodelay; limit_req_status 503; proxy_pass UPSTREAM; }
	location /exempt { limit_req zone=exempt; proxy_pass UPSTREAM; }
	location /counted { limit_req zone=counted; proxy_pass UPSTREAM; }
	location /alone { limit_conn alone 1; proxy_pass UPSTREAM; }
	location /post { limit_req zone=post; proxy_pass UPSTREAM; }
	location /get { limit_req zone=get burst=1 nodelay; proxy_pass UPSTREAM; }
	location /admin { proxy_pass UPSTREAM; }
}
`

const differentConfig = `
limit_req_zone $binary_remote_addr zone=outer:1m rate=1r/m;
limit_req_zone $binary_remote_addr zone=own:1m rate=1r/m;
limit_req_zone $binary_remote_addr zone=static:1m rate=1r/m;
limit_req_zone $binary_remote_addr zone=exact:1m rate=1r/m;
limit_req_zone $binary_remote_addr zone=css:1m rate=1r/m;
limit_req_zone $binary_remote_addr zone=assets:1m rate=1r/m;
limit_req_zone $binary_remote_addr zone=regex:1m rate=1r/m;
limit_req_zone $binary_remote_addr zone=shared:1m rate=1r/m;
limit_req_zone $binary_remote_addr zone=api:1m rate=1r/m;
limit_req_zone $binary_remote_addr zone=nested:1m rate=1r/m;
limit_req_zone $http_x_agent zone=agent:1m rate=1r/m;
server {
	listen LISTEN;
	limit_req zone=outer burst=2 nodelay;
	location /plain { proxy_pass UPSTREAM; }
	location /own { limit_req zone=own burst=4 nodelay; proxy_pass UPSTREAM; }
	location /own/static { limit_req zone=static burst=9 nodelay; proxy_pass UPSTREAM; }
	location = /exact { limit_req zone=exact; proxy_pass UPSTREAM; }
	location ~ \.css$ { limit_req zone=css burst=20 nodelay; proxy_pass UPSTREAM; }
	location ^~ /assets/ { limit_req zone=assets burst=3 nodelay; proxy_pass UPSTREAM; }
	location ~ ^/regex/ { limit_req zone=regex burst=1 nodelay; proxy_pass UPSTREAM; }
	location /nested { proxy_pass UPSTREAM; location ^~ /nested/a { limit_req zone=nested; proxy_pass UPSTREAM; } }
	location /agent { limit_req zone=agent; proxy_pass UPSTREAM; }
	location /return { return 200; }
	location /shared/a { limit_req zone=shared burst=5 nodelay; proxy_pass UPSTREAM; }
	location /shared/b { limit_req zone=shared burst=2 nodelay; proxy_pass UPSTREAM; }
	location /api { limit_req zone=api; proxy_pass UPSTREAM; }
	location /admin { proxy_pass UPSTREAM; limit_req zone=agent; }
}
`
