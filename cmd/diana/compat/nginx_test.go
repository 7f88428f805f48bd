// SPDX-License-Identifier: MIT

package compat

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diana-limiter/diana/internal/testproc"
)

// nginxServers starts one nginx with an upstream a port.
func nginxServers(t testing.TB, files string, mux upstream) []upstream {
	t.Helper()
	var all []upstream
	var servers strings.Builder
	for _, s := range []struct{ name, body string }{
		{"nginx", `location / { return 200 "served: $uri\n"; }`},
		{"nginx merge_slashes off", `merge_slashes off; location / { return 200 "served: $uri\n"; }`},
		{"nginx files", `location / { root ` + files + `; index index.html; }`},
		{"nginx proxy_pass with URI", `location / { proxy_pass http://mux/; }`},
		{"nginx proxy_pass as sent", `location / { proxy_pass http://mux; }`},
		{"nginx location ~*", `location ~* ^(/base)?/admin(/|$) { return 200 "served: $1/admin\n"; } location /base/ { return 200 "served: /base/\n"; } location / { return 200 "served: /other\n"; }`},
	} {
		host := fmt.Sprintf("127.0.0.1:%d", testproc.FreePort(t))
		all = append(all, upstream{s.name, host})
		fmt.Fprintf(&servers, "server { listen %s; default_type text/plain; %s }\n", host, s.body)
	}
	dir := t.TempDir()
	config := fmt.Sprintf(nginxConfig, dir, dir, mux.host, servers.String())
	if os.Getuid() == 0 {
		config = "user root;\n" + config // the worker must reach its folders below dir
	}
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("nginx")
	if err != nil {
		program = "/usr/sbin/nginx" // where only root looks
	}
	start(t, all, program, "-c", file, "-p", dir)
	return all
}

const nginxConfig = `daemon off;
master_process off; # a worker outlives a master that is killed
error_log stderr crit;
pid %[1]s/nginx.pid;
events { worker_connections 512; }
http {
	access_log off;
	client_body_temp_path %[2]s/a; proxy_temp_path %[2]s/b; fastcgi_temp_path %[2]s/c; uwsgi_temp_path %[2]s/d; scgi_temp_path %[2]s/e;
	large_client_header_buffers 8 64k;
	keepalive_requests 1000000;
	upstream mux { server %[3]s; keepalive 16; }
	proxy_http_version 1.1;
	proxy_set_header Connection "";
	%[4]s
}
`
