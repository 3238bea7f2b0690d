{{ config(materialized="view", alias="worst_carriers") }}
select name, delay from {{ ref("delays") }} where delay > 60
