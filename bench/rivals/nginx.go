// SPDX-License-Identifier: MIT

package rivals

import (
	"strings"

	"github.com/diana-limiter/diana/bench/measure"
)

// nginxConfig has no limit of requests on a connection, because the other servers have none either.
const nginxConfig = `
daemon off;
PROCESSES
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
	SERVER
}
`

func nginx(processes, server string) measure.Command {
	return func(y *measure.Yard, address string) ([]string, error) {
		if err := measure.Needs("nginx"); err != nil {
			return nil, err
		}
		dir := y.TempDir()
		text := strings.NewReplacer("PROCESSES", processes, "SERVER", server).Replace(nginxConfig)
		file, err := y.File("nginx.conf", strings.NewReplacer("DIR", dir, "ADDRESS", address, "UPSTREAM", strings.TrimPrefix(y.Upstream, "http://")).Replace(text))
		return []string{measure.Program("nginx"), "-c", file, "-p", dir}, err
	}
}

// The directives of a location. The three rules are those of Diana: one for all requests, one by address, one by
// device.
const (
	NginxPlain    = "access_log /dev/null;"
	NginxForwards = NginxPlain + " limit_req zone=all burst=100000 nodelay; limit_req zone=ip burst=100000 nodelay; limit_req zone=device burst=100000 nodelay;"
	NginxRefuses  = "access_log off; limit_req zone=all burst=100000 nodelay; limit_req zone=ip burst=100000 nodelay; limit_req zone=refused;"
)

// Nginx is nginx as a gateway, with directives of its location. Every location forwards, because nginx never
// limits what "return" answers. It runs as one process, which equals one worker, and ends with this program.
func Nginx(location string) measure.Command {
	return nginx("master_process off;", `limit_req_status 503;
	limit_req_zone $server_name zone=all:1m rate=1000000r/s;
	limit_req_zone $binary_remote_addr zone=ip:1m rate=1000000r/s;
	limit_req_zone $http_x_device_id zone=device:1m rate=1000000r/s;
	limit_req_zone $http_x_device_id zone=refused:1m rate=1r/m;
	upstream up { server UPSTREAM; keepalive 128; keepalive_requests 1000000000; }
	server {
		listen ADDRESS;
		server_name bench;
		location / {
			`+location+`
			proxy_pass http://up;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
		}
	}`)
}

// NginxExact is nginx with the limits 1,000 a minute and 100 a second for each path below /minute/ and /second/.
// Its workers share their counters.
func NginxExact() measure.Command {
	return nginx("worker_processes 3;", `access_log off;
	limit_req_status 429;
	limit_req_zone $uri zone=minute:1m rate=1000r/m;
	limit_req_zone $uri zone=second:1m rate=100r/s;
	server {
		listen ADDRESS;
		location /minute/ { limit_req zone=minute burst=999 nodelay; empty_gif; }
		location /second/ { limit_req zone=second burst=99 nodelay; empty_gif; }
	}`)
}
