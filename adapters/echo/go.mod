module github.com/diana-limiter/diana/adapters/echo

go 1.26.0

require (
	github.com/diana-limiter/diana v0.9.0-rc.1
	github.com/labstack/echo/v5 v5.4.4
)

require (
	github.com/redis/rueidis v1.0.79 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)
