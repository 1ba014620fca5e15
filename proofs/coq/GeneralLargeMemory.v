(* Any order of events, in a large memory: the constant is 3 (new ground beyond (e)).

   Nothing is assumed about residency: words of q, k, v, of partial scores and of
   outputs come and go one at a time, scores may be spilled, merged and formed again.
   The score s_ij is summed from its d products q_ic k_jc (Mac i j c) in a word p_ij;
   the finished score multiplies v_jc into o_ic (Acc i j c).  Then, for any window
   length 0 < L <= M, with D = d^2 + 2 d dv + dv,

     L (visible pairs) D <= (L (M + L - 1) + D M) traffic

   and for dv = d, M = k^2 >= 4 d^2, no mask,

     (3 d^2 + d) nq nk <= (M + 4 d sqrt(M)) traffic

   so the constant tends to 3 as M / d^2 grows; theorem (e) has 1, and flash2 moves 4.

   Hypotheses: 0 < dv; the execution is valid, and every product of a visible pair is
   in the saved outputs.

   Proof: Windows.v, with the partial scores as hubs.  When p_ij is formed in a window
   and used in it, all of q_i and k_j, v_jc and o_ic are among the words seen there:
   q_i meets k_j and, over all c, v_j; o_i meets k_j; and o_ic meets v_jc. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine Meeting Windows AttentionModel.
Import ListNotations.

Inductive pword :=
| Pq (i c : nat) | Pk (j c : nat) | Pv (j c : nat)
| Po (i c : nat)                         (* outputs, accumulated *)
| Pp (i j : nat)                         (* scores, partial or finished *)
| Px (made : bool) (n : nat).            (* anything else *)

Inductive ptask := Mac (i j c : nat) | Acc (i j c : nat).

Definition pword_dec (x y : pword) : {x = y} + {x <> y}.
Proof. decide equality; first [ apply Nat.eq_dec | apply Bool.bool_dec ]. Defined.

Definition p_input (w : pword) : bool :=
  match w with Pq _ _ | Pk _ _ | Pv _ _ => true | Po _ _ | Pp _ _ => false | Px made _ => negb made end.

Definition products (d : nat) : model := {|
  word := pword;
  task := ptask;
  word_dec := pword_dec;
  input := p_input;
  needs t := match t with
    | Mac i j c => [Pq i c; Pk j c; Pp i j]
    | Acc i j c => [Pp i j; Pv j c; Po i c]
    end;
  outs t := match t with Mac i j _ => [Pp i j] | Acc i _ c => [Po i c] end;
  ready t c := match t with
    | Mac _ _ _ => True
    | Acc i j _ => forall x, x < d -> In (Mac i j x) (c (Pp i j))
    end
|}.

Definition p_complete d dv vis (s : state (products d)) : Prop :=
  forall i j c, In (i, j) vis -> c < dv -> In (Acc i j c) (saved s (Po i c)).

Definition is_partial (w : pword) : bool := match w with Pp _ _ => true | _ => false end.
Definition partial_of (t : ptask) : pword := match t with Mac i j _ | Acc i j _ => Pp i j end.
Definition partial_tasks d (t : ptask) : list ptask :=
  match t with Acc i j _ => map (Mac i j) (seq 0 d) | Mac _ _ _ => [] end.

(* The word pairs that a pair (i, j) wants for itself. *)
Definition p_words (f : nat -> pword) n := map f (seq 0 n).
Definition p_targets d dv (p : nat * nat) : list (pword * pword) :=
  let (i, j) := p in
  list_prod (p_words (Pq i) d) (p_words (Pk j) d ++ p_words (Pv j) dv)
  ++ list_prod (p_words (Po i) dv) (p_words (Pk j) d)
  ++ map (fun c => (Po i c, Pv j c)) (seq 0 dv).

Definition p_query_side (w : pword) : bool := match w with Pq _ _ | Po _ _ => true | _ => false end.
Definition p_row (w : pword) : nat :=
  match w with Pq i _ | Po i _ | Pk i _ | Pv i _ | Pp i _ | Px _ i => i end.
Definition p_owner (xy : pword * pword) := (p_row (fst xy), p_row (snd xy)).

Lemma in_p_words f n w : In w (p_words f n) <-> exists c, c < n /\ f c = w.
Proof.
  unfold p_words. rewrite in_map_iff. split; intros (c & H1 & H2); exists c;
    [ rewrite in_seq in H2 | rewrite in_seq ]; split; trivial; lia.
Qed.

Ltac in_p := repeat match goal with
  | H : In _ (_ ++ _) |- _ => apply in_app_iff in H; destruct H
  | H : In (_, _) (list_prod _ _) |- _ => apply in_prod_iff in H; destruct H
  | H : In _ (map _ (seq 0 _)) |- _ =>
      let E := fresh "E" in apply in_map_iff in H as (? & E & ?); injection E as <- <-
  | H : In _ (p_words _ _) |- _ =>
      let E := fresh "E" in apply in_p_words in H as (? & ? & E); first [ discriminate E | subst ]
  end.

Lemma p_words_NoDup f n : (forall x y, f x = f y -> x = y) -> NoDup (p_words f n).
Proof. intros H. apply NoDup_map; [ exact H | apply seq_NoDup ]. Qed.

Lemma p_targets_shape d dv p :
  NoDup (p_targets d dv p) /\ length (p_targets d dv p) = d * d + 2 * (d * dv) + dv.
Proof.
  destruct p as [i j]. unfold p_targets. split.
  - apply NoDup_app; [ | apply NoDup_app | ].
    + apply NoDup_list_prod; [ apply p_words_NoDup; congruence | ].
      apply NoDup_app; try (apply p_words_NoDup; congruence). intros w ? ?; in_p.
    + apply NoDup_list_prod; apply p_words_NoDup; congruence.
    + apply NoDup_map; [ congruence | apply seq_NoDup ].
    + intros [x y] H H'. in_p.
    + intros [x y] H H'. in_p.
  - rewrite !app_length, !prod_length, app_length. unfold p_words.
    rewrite !map_length, !seq_length. lia.
Qed.

Lemma p_targets_owner d dv p x y : In (x, y) (p_targets d dv p) ->
  p_query_side x = true /\ p_query_side y = false /\ p_owner (x, y) = p.
Proof. destruct p as [i j]. unfold p_targets. intros H. in_p; cbn; auto. Qed.

Theorem general_window_bound d dv vis M L es :
  0 < L -> L <= M -> 0 < dv -> NoDup vis ->
  valid M (init (products d)) es -> p_complete d dv vis (run (init _) es) ->
  L * (length vis * (d * d + 2 * (d * dv) + dv))
  <= (L * (M + L - 1) + (d * d + 2 * (d * dv) + dv) * M) * traffic es.
Proof.
  intros HL0 HL Hdv Hvis V C.
  destruct (window_meeting (X := products d) M L is_partial partial_of (partial_tasks d) HL0)
    with (es := es) as (k & ar & rl & far & paid & P & Fa & Hk & T & G); trivial.
  - intros [] E; cbn in *; congruence.
  - intros [i j c | i j c] w; cbn; tauto.
  - intros [i j c | i j c] ct Hr t' Ht'; cbn in *; [ contradiction | ].
    apply in_map_iff in Ht' as (x & <- & Hx). apply in_seq in Hx. split; [ reflexivity | ].
    apply Hr. lia.
  - set (lost := fun p => if in_dec pword_dec (Pp (fst p) (snd p)) far then true else false).
    set (near := filter (fun p => negb (lost p)) vis). set (gone := filter lost vis).
    apply (window_count M L _ _ (length near) (length far) (length paid) k ar rl); trivial.
    + assert (E : length vis = length near + length gone) by apply filter_split.
      assert (Hg : length gone <= length far).
      { rewrite <- (map_length (fun p => Pp (fst p) (snd p)) gone).
        apply NoDup_incl_length.
        - apply NoDup_map; [ intros [] []; cbn; congruence | now apply NoDup_filter ].
        - intros w Hw. apply in_map_iff in Hw as (p & <- & Hp).
          apply filter_In in Hp as [_ Hp]. unfold lost in Hp.
          destruct (in_dec pword_dec (Pp (fst p) (snd p)) far); [ assumption | discriminate ]. }
      change (word (products d)) with pword in *. lia.
    + apply (count_targets p_query_side p_owner (p_targets d dv)).
      * now apply NoDup_filter.
      * apply p_targets_shape.
      * apply p_targets_owner.
      * intros [i j] x y Hp Hxy. apply filter_In in Hp as [Hp Hf].
        unfold lost in Hf. cbn [fst snd] in Hf.
        assert (K : forall c, c < dv ->
          (exists c', c' < d /\ x = Pq i c') \/ x = Po i c ->
          (exists c', c' < d /\ y = Pk j c') \/ y = Pv j c -> met paid x y).
        { intros c Hc Hx Hy. destruct (G (Po i c) (Acc i j c) eq_refl (C i j c Hp Hc)) as [H | H].
          - cbn [partial_of] in H.
            destruct (in_dec pword_dec (Pp i j) far); [ discriminate | contradiction ].
          - assert (S : forall c' z, c' < d -> z = Pq i c' \/ z = Pk j c' ->
              In z (flat_map (needs (m := products d)) (Acc i j c :: partial_tasks d (Acc i j c)))).
            { intros c' z Hc' Hz. apply in_flat_map. exists (Mac i j c'). split.
              - right. cbn. apply in_map, in_seq. lia.
              - cbn. intuition auto. }
            apply H.
            + destruct Hx as [(c' & Hc' & E) | ->]; [ apply (S c'); auto | cbn; auto ].
            + destruct Hy as [(c' & Hc' & E) | ->]; [ apply (S c'); auto | cbn; auto ].
            + intros ->. destruct Hx as [(? & _ & Ex) | Ex], Hy as [(? & _ & Ey) | Ey]; congruence.
            + destruct Hx as [(? & _ & ->) | ->]; auto.
            + destruct Hy as [(? & _ & ->) | ->]; auto. }
        unfold p_targets in Hxy. apply in_app_iff in Hxy as [Hxy | Hxy].
        -- apply in_prod_iff in Hxy as [Hx Hy]. apply in_p_words in Hx as (c1 & H1 & <-).
           apply in_app_iff in Hy as [Hy | Hy]; apply in_p_words in Hy as (c2 & H2 & <-).
           ++ apply (K 0); eauto.
           ++ apply (K c2); eauto.
        -- apply in_app_iff in Hxy as [Hxy | Hxy].
           ++ apply in_prod_iff in Hxy as [Hx Hy]. apply in_p_words in Hx as (c1 & H1 & <-).
              apply in_p_words in Hy as (c2 & H2 & <-). apply (K c1); eauto.
           ++ apply in_map_iff in Hxy as (c & E & Hc). injection E as <- <-.
              apply in_seq in Hc. apply (K c); auto. lia.
Qed.

(* dv = d, no mask, M = k^2 and windows of 2dk. *)
Corollary general_bound_large_memory d nq nk k es :
  0 < d -> 2 * d <= k ->
  valid (k * k) (init (products d)) es ->
  p_complete d d (all_pairs nq nk) (run (init _) es) ->
  nq * nk * (3 * d * d + d) <= (k * k + 4 * d * k) * traffic es.
Proof.
  intros Hd Hk V C.
  assert (HL : 0 < 2 * d * k) by nia.
  assert (HM : 2 * d * k <= k * k) by (apply Nat.mul_le_mono_r; exact Hk).
  pose proof (general_window_bound d d _ (k * k) (2 * d * k) es HL HM Hd
    (all_pairs_NoDup nq nk) V C) as H.
  rewrite all_pairs_length in H.
  replace (d * d + 2 * (d * d) + d) with (3 * d * d + d) in H by lia.
  set (c := traffic es) in *. clearbody c.
  apply (Nat.mul_le_mono_pos_l _ _ (2 * d * k)); [ exact HL | ].
  assert (D4 : 3 * d * d + d <= 4 * d * d) by nia.
  assert (B : (2 * d * k * (k * k + 2 * d * k - 1) + (3 * d * d + d) * (k * k)) * c
              <= 2 * d * k * (k * k + 4 * d * k) * c).
  { apply Nat.mul_le_mono_r.
    assert (2 * d * k * (k * k + 2 * d * k - 1) <= 2 * d * k * (k * k + 2 * d * k))
      by (apply Nat.mul_le_mono_l; lia).
    assert ((3 * d * d + d) * (k * k) <= 4 * d * d * (k * k)) by (apply Nat.mul_le_mono_r; exact D4).
    lia. }
  lia.
Qed.
