// SPDX-License-Identifier: MIT

package main

import (
	"os/exec"
	"strings"
)

// nginx has the same three rules by limit_req: one for all requests, one by address, one by
// device. Every location forwards, because nginx never limits what "return" answers.
//
// nginx runs as one process, which equals one worker, and ends with this program. It has no limit
// of requests on a connection, because the other servers have none either.

// The directives of a location.
const (
	nginxPlain    = "access_log /dev/null;"
	nginxForwards = nginxPlain + " limit_req zone=all burst=100000 nodelay; limit_req zone=ip burst=100000 nodelay; limit_req zone=device burst=100000 nodelay;"
	nginxRefuses  = "access_log off; limit_req zone=all burst=100000 nodelay; limit_req zone=ip burst=100000 nodelay; limit_req zone=refused;"
)

const nginxConfig = `
daemon off;
master_process off;
pid DIR/nginx.pid;
error_log /dev/null crit;
events { worker_connections 4096; }
http {
	client_body_temp_path DIR/body;
	proxy_temp_path DIR/proxy;
	fastcgi_temp_path DIR/fastcgi;
	uwsgi_temp_path DIR/uwsgi;
	scgi_temp_path DIR/scgi;
	keepalive_requests 1000000000;
	limit_req_status 503;
	limit_req_zone $server_name zone=all:1m rate=1000000r/s;
	limit_req_zone $binary_remote_addr zone=ip:1m rate=1000000r/s;
	limit_req_zone $http_x_device_id zone=device:1m rate=1000000r/s;
	limit_req_zone $http_x_device_id zone=refused:1m rate=1r/m;
	upstream up { server UPSTREAM; keepalive 128; keepalive_requests 1000000000; }
	server {
		listen ADDRESS;
		server_name bench;
		location / {
			LOCATION
			proxy_pass http://up;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
		}
	}
}
`

// nginxProgram returns the path of nginx, or "".
func nginxProgram() string {
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} { // the second is often only in root's PATH
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func nginxCommand(location string) commander {
	return func(y *yard, address string) ([]string, error) {
		dir := y.TempDir()
		file, err := y.file("nginx.conf", strings.NewReplacer("DIR", dir, "ADDRESS", address,
			"UPSTREAM", strings.TrimPrefix(y.upstream, "http://"), "LOCATION", location).Replace(nginxConfig))
		return []string{nginxProgram(), "-c", file, "-p", dir}, err
	}
}
