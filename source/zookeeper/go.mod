module github.com/diana-limiter/diana/source/zookeeper

go 1.26.0

require (
	github.com/diana-limiter/diana v0.9.0-rc.1
	github.com/go-zookeeper/zk v1.0.4
	go.uber.org/goleak v1.3.0
)
