module github.com/diana-limiter/diana/jwt

go 1.26.0

require (
	github.com/diana-limiter/diana v0.9.0-rc.1
	github.com/go-jose/go-jose/v4 v4.1.9
	github.com/golang-jwt/jwt/v5 v5.3.1
)

require go.yaml.in/yaml/v4 v4.0.0 // indirect
