// SPDX-License-Identifier: MIT

package main

import (
	"os/exec"
	"strings"
)

// nginx with limit_req has the same three rules: one for all, one by address, one by
// device. A location must do something: what "return" answers is never limited.
//
// It runs as one process, which is what it would be with one worker, and ends with this
// program. Its own limits of requests for a connection are lifted, as nobody else has
// such.

// What nginx does in a location.
const (
	nginxPlain   = "access_log /dev/null;"
	nginxPasses  = nginxPlain + " limit_req zone=all burst=100000 nodelay; limit_req zone=ip burst=100000 nodelay; limit_req zone=device burst=100000 nodelay;"
	nginxRefuses = "access_log off; limit_req zone=all burst=100000 nodelay; limit_req zone=ip burst=100000 nodelay; limit_req zone=refused;"
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

// nginxProgram returns where nginx is, "" if it is not.
func nginxProgram() string {
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} { // where only root looks
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
