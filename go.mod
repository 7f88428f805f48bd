module github.com/diana-limiter/diana

go 1.26.0

require (
	go.yaml.in/yaml/v4 v4.0.0
	pgregory.net/rapid v1.3.0
)
